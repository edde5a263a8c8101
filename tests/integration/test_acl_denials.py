"""Every API to a client without rights, and the removal of a right on all brokers of a cluster."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from bench.peers.cluster import ClusterProcess
from odradek.wire.acls import AclBinding, AclOperation, ResourceType
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from odradek.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.conftest import MakeBroker
from tests.integration.acl_probes import (
    ADMINISTRATOR,
    CLIENT,
    TOPIC,
    Client,
    creation,
    everything_for_the_administrator,
    probes,
    removal_of_the_clients,
    shape,
)
from tests.integration.clusters import sound_cluster
from tests.integration.waiting import until

SETTINGS = {
    "authorizer.class.name": "odradek",
    "allow.everyone.if.no.acl.found": "true",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}
HIDES_WHAT_IS_DENIED = {
    "MetadataRequest 10",
    "DescribeTopicPartitionsRequest 0",
    "OffsetFetchRequest 8",
    "ListGroupsRequest 4",
    "ListTransactionsRequest 0",
}


def prepared(administrator: Client) -> None:
    """The topic, and ACLs without which everybody might do everything."""
    topic = CreateTopicsRequestTopic(TOPIC, 1, 1)
    assert not administrator.call(CreateTopicsRequest([topic], 20_000), 5).topics[0].error_code
    made = administrator.call(creation(everything_for_the_administrator()), 2)
    assert not any(each.error_code for each in made.results)


def test_client_without_rights_is_rejected_or_sees_nothing(make_broker: MakeBroker) -> None:
    broker = make_broker(SETTINGS)
    broker.start()
    prepared(Client(broker.bootstrap, ADMINISTRATOR))
    client = Client(broker.bootstrap, CLIENT)
    for request, version in probes():
        found = shape(client.call(request, version))
        name = f"{type(request).__name__} {version}"
        refused = any(each[-1] in ErrorCode.__members__ for each in found)
        bits = {each[-1] for each in found if str(each[2]).endswith("operations")}
        assert refused or name in HIDES_WHAT_IS_DENIED or bits == {0}, f"{name}: {found}"
        assert not any(each[1:2] == ("names",) for each in found) or refused, f"{name} shows {found}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcess]:
    with sound_cluster(tmp_path_factory.mktemp("acls"), SETTINGS) as running:
        yield running


def test_removed_acl_denies_open_connections_of_all_brokers(cluster: ClusterProcess) -> None:
    addresses = cluster.bootstrap.split(",")
    administrators = [Client(each, ADMINISTRATOR) for each in addresses]
    clients = [Client(each, CLIENT) for each in addresses]
    prepared(administrators[0])
    right = AclBinding(ResourceType.TOPIC, TOPIC, "User:ANONYMOUS", AclOperation.DESCRIBE, host=CLIENT)
    wanted = MetadataRequest([MetadataRequestTopic(name=TOPIC)], False)

    def allowed() -> list[bool]:
        codes = [each.call(wanted, 12).topics[0].error_code for each in clients]
        return [code != ErrorCode.TOPIC_AUTHORIZATION_FAILED for code in codes]

    for administrator in administrators:
        assert not administrator.call(creation([right]), 2).results[0].error_code
        until(lambda: all(allowed()), "the ACL allows on all brokers")
        assert administrator.call(removal_of_the_clients(), 2).filter_results[0].matching_acls
        until(lambda: not any(allowed()), "the removed ACL denies on all brokers")
    controller = administrators[0].call(wanted, 12).controller_id
    position = next(number for number in range(len(addresses)) if number + 1 != controller)
    assert not administrators[position].call(creation([right]), 2).results[0].error_code
    until(lambda: all(allowed()), "the ACL allows on all brokers")
    cluster.signal_broker(controller, signal.SIGKILL)
    assert administrators[position].call(removal_of_the_clients(), 2).filter_results[0].matching_acls
    assert clients[position].call(wanted, 12).topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
