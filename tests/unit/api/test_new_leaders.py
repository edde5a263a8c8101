"""The addresses of current leaders for a client that asked the wrong broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from odradek.api.data.new_leaders import current_leader, endpoints
from odradek.metadata.image import NO_LEADER, Broker, ClusterImage, Endpoint, PartitionState, Topic


def context(*leaders: int) -> Any:
    states = tuple(PartitionState(leader, 9, (1, 2, 3), (leader,)) for leader in leaders)
    image = ClusterImage().with_topics([Topic("t", b"t" * 16, states)])
    brokers = {i: Broker(i, 1, f"rack-{i}", {"CLIENTS": Endpoint(f"h{i}", 9000 + i, "PLAINTEXT")}) for i in (1, 2)}
    brokers[3] = Broker(3, 1, None, {"OTHER": Endpoint("h3", 9003, "PLAINTEXT")})
    image = image.with_brokers(brokers)
    services = SimpleNamespace(image=lambda: image, node_id=1)
    return SimpleNamespace(services=services, session=SimpleNamespace(listener_name="CLIENTS"))


def test_leader_elsewhere_is_named_with_its_epoch() -> None:
    found = context(2, 1, NO_LEADER)
    assert [current_leader(found, "t", index) for index in range(4)] == [(2, 9), None, None, None]
    assert current_leader(found, b"t" * 16, 0) == (2, 9)
    assert current_leader(found, b"u" * 16, 0) is None


def test_each_leader_is_located_once_on_the_listener_of_the_client() -> None:
    found = endpoints(context(), [(2, 7), None, (1, 2), (2, 8), (3, 1), (5, 1)])
    assert [(each.node_id, each.host, each.port, each.rack) for each in found] == [
        (1, "h1", 9001, "rack-1"),
        (2, "h2", 9002, "rack-2"),
    ]
