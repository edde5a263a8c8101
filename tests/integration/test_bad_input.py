"""What a broker does with requests that no sane client sends: a clear answer or an end, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from odradek.wire.errors import ErrorCode
from odradek.wire.messages import api_versions, list_offsets, metadata, offset_commit, stop_replica, update_metadata
from tests.integration.as_broker import prove

Connect = Callable[[str], Any]


@pytest.fixture
def bystander(odradek_broker: Any, connect: Connect) -> Any:
    """Another client's connection, which must not notice."""
    client = connect(odradek_broker.bootstrap)
    yield client
    assert client.call(metadata.MetadataRequest(topics=[]), 12).brokers


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def request(key: int, version: int, body: bytes = b"") -> bytes:
    return frame(key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\7" + b"\0\1c" + body)


def test_an_unknown_version_of_api_versions_is_answered_with_the_table(
    odradek_broker: Any, connect: Connect, bystander: Any
) -> None:
    client = connect(odradek_broker.bootstrap)
    client.socket.sendall(request(18, 99, b"\0"))
    answer = memoryview(client.receive_frame())
    assert answer[:4] == b"\0\0\0\7"
    table, end = api_versions.ApiVersionsResponse.decode(answer, 4, 0)
    assert end == len(answer)
    assert table.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert {entry.api_key for entry in table.api_keys} >= {0, 1, 2, 3, 18}
    assert client.call(api_versions.ApiVersionsRequest("test", "1"), 4).error_code == 0, "the connection still works"


def test_an_invalid_client_name_is_rejected(odradek_broker: Any, connect: Connect) -> None:
    client = connect(odradek_broker.bootstrap)
    assert client.call(api_versions.ApiVersionsRequest("-bad-", "1"), 3).error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(request(999, 0), id="unknown key"),
        pytest.param(request(3, 99), id="unknown version"),
        pytest.param(request(3, 9, b"\xff\xff\xff\xff\x0f"), id="absurd array length"),
        pytest.param(request(3, 1, b"\x7f\xff\xff\xff"), id="array longer than the frame"),
        pytest.param(request(1, 12, b"\0" * 7), id="truncated body"),
        pytest.param(frame(b"\0\3"), id="truncated header"),
        pytest.param(frame(b""), id="empty frame"),
        pytest.param(b"\xff\xff\xff\xff", id="negative size"),
        pytest.param(b"\x7f\xff\xff\xff", id="size over socket.request.max.bytes"),
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="another protocol"),
    ],
)
def test_garbage_closes_its_connection_only(odradek_broker: Any, connect: Connect, bystander: Any, data: bytes) -> None:
    client = connect(odradek_broker.bootstrap)
    client.socket.sendall(data)
    assert client.is_closed_by_peer()


def test_a_request_in_tiny_pieces_is_served(odradek_broker: Any, connect: Connect) -> None:
    client = connect(odradek_broker.bootstrap)
    for byte in request(18, 0):
        client.socket.sendall(bytes((byte,)))
    table, _ = api_versions.ApiVersionsResponse.decode(memoryview(client.receive_frame()), 4, 0)
    assert table.error_code == 0


def test_invalid_topic_names_are_not_created(odradek_broker: Any, connect: Connect) -> None:
    client = connect(odradek_broker.bootstrap)
    for name in ("", ".", "..", "a/b", "x" * 250, "sp ace"):
        asked = metadata.MetadataRequest([metadata.MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
        found = client.call(asked, 9).topics[0]
        assert (found.name, found.error_code) == (name, ErrorCode.INVALID_TOPIC_EXCEPTION)


def test_connections_over_the_limit_are_closed_at_once(make_broker: Callable[..., Any], connect: Connect) -> None:
    broker = make_broker({"max.connections": 2}).start()
    first, second = connect(broker.bootstrap), connect(broker.bootstrap)
    assert first.call(metadata.MetadataRequest(topics=[]), 9).brokers
    assert second.call(metadata.MetadataRequest(topics=[]), 9).brokers
    assert connect(broker.bootstrap).is_closed_by_peer()
    first.close()
    assert second.call(metadata.MetadataRequest(topics=[]), 9).brokers


def test_an_address_may_have_a_limit_of_its_own(make_broker: Callable[..., Any], connect: Connect) -> None:
    settings = {"max.connections.per.ip": 0, "max.connections.per.ip.overrides": "10.0.0.1:9,127.0.0.1:1"}
    broker = make_broker(settings).start()
    first = connect(broker.bootstrap)
    assert first.call(metadata.MetadataRequest(topics=[]), 9).brokers
    assert connect(broker.bootstrap).is_closed_by_peer()


def test_an_idle_connection_is_closed(make_broker: Callable[..., Any], connect: Connect) -> None:
    broker = make_broker({"connections.max.idle.ms": 1500}).start()
    while True:
        client = connect(broker.bootstrap)
        try:
            assert client.call(metadata.MetadataRequest(topics=[]), 9).brokers
        except ConnectionError:
            continue  # this process had to wait for its turn for so long
        break
    assert client.is_closed_by_peer()


def test_a_request_larger_than_allowed_is_rejected_before_it_is_read(
    make_broker: Callable[..., Any], connect: Connect
) -> None:
    broker = make_broker({"socket.request.max.bytes": 1000}).start()
    client = connect(broker.bootstrap)
    client.socket.sendall(request(18, 0, b"x" * 2000))
    assert client.is_closed_by_peer()


def test_a_request_may_name_so_many_topics(make_broker: Callable[..., Any], connect: Connect) -> None:
    client = connect(make_broker({"odradek.max.request.topics": 10}).start().bootstrap)
    for count, code in ((10, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (11, ErrorCode.INVALID_REQUEST)):
        asked = [metadata.MetadataRequestTopic(name=f"topic-{number}") for number in range(count)]
        for version in (4, 9, 12):
            found = client.call(metadata.MetadataRequest(asked, False), version).topics
            assert [topic.error_code for topic in found] == [code] * count


def test_a_request_may_name_so_many_partitions(make_broker: Callable[..., Any], connect: Connect) -> None:
    client = connect(make_broker({"odradek.max.request.partitions": 20}).start().bootstrap)
    for count, codes in ((10, {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}), (11, {ErrorCode.INVALID_REQUEST})):
        rows = [list_offsets.ListOffsetsRequestPartition(index, timestamp=-1) for index in range(count)]
        asked = [list_offsets.ListOffsetsRequestTopic(name, rows) for name in ("a", "b")]
        answer = client.call(list_offsets.ListOffsetsRequest(topics=asked), 7)
        assert {row.error_code for topic in answer.topics for row in topic.partitions} == codes
        commits = [offset_commit.OffsetCommitRequestPartition(index, 1) for index in range(count)]
        committed = [offset_commit.OffsetCommitRequestTopic(name, partitions=commits) for name in ("a", "b")]
        answer = client.call(offset_commit.OffsetCommitRequest("g", topics=committed), 8)
        assert {row.error_code for topic in answer.topics for row in topic.partitions} == codes


def test_a_large_request_that_is_no_produce_ends_its_connection(
    make_broker: Callable[..., Any], connect: Connect
) -> None:
    broker = make_broker({"odradek.max.control.request.bytes": 2000}).start()
    client = connect(broker.bootstrap)
    client.send(metadata.MetadataRequest([metadata.MetadataRequestTopic(name="x" * 200)] * 10, False), 9)
    assert client.is_closed_by_peer()
    assert connect(broker.bootstrap).call(metadata.MetadataRequest(topics=[]), 9).brokers


def test_requests_of_the_controller_are_as_large_as_the_cluster(
    make_broker: Callable[..., Any], connect: Connect
) -> None:
    broker = make_broker({"odradek.max.control.request.bytes": 2000}).start()
    brokers = [update_metadata.UpdateMetadataRequestBroker(id=i, endpoints=[], rack="r" * 100) for i in range(100)]
    request = update_metadata.UpdateMetadataRequest(controller_id=7, controller_epoch=0, live_brokers=brokers)
    client = connect(broker.bootstrap)
    prove(client, broker.data_dir)
    assert client.call(request, 8).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


def test_client_cannot_take_a_partition_away(odradek_broker: Any, connect: Connect) -> None:
    """With a guessed controller epoch and a broker epoch that is never stale."""
    client = connect(odradek_broker.bootstrap)
    state = stop_replica.StopReplicaRequestPartitionState(0, -1, True)
    request = stop_replica.StopReplicaRequest(
        controller_id=1,
        controller_epoch=1,
        broker_epoch=1 << 62,
        topic_states=[stop_replica.StopReplicaRequestTopicState("t", [state])],
    )
    assert client.call(request, 4).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
