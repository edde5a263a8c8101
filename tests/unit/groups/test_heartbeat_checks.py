"""Which heartbeats of the new protocol contradict themselves (KIP-848), by epoch and version."""

from __future__ import annotations

from typing import Any

import pytest

from odradek.groups.consumer.heartbeats import check_request
from odradek.groups.events import ConsumerHeartbeat
from odradek.wire.errors import ErrorCode, KafkaError

JOINS = ConsumerHeartbeat("g", "m", 0, None, None, "c", "/h", 30_000, ("t",), None, None, {})


@pytest.mark.parametrize(
    ("changes", "version", "is_valid"),
    [
        ({}, 1, True),
        ({"member_id": ""}, 1, False),
        ({"member_id": ""}, 0, True),
        ({"member_id": "", "member_epoch": 1}, 0, False),
        ({"member_id": "", "member_epoch": -1}, 0, False),
        ({"group_id": ""}, 1, False),
        ({"instance_id": ""}, 1, False),
        ({"instance_id": "i"}, 1, True),
        ({"rack_id": ""}, 1, False),
        ({"rack_id": "r"}, 1, True),
        ({"rebalance_timeout_ms": -1}, 1, False),
        ({"rebalance_timeout_ms": 0}, 1, True),
        ({"owned": None}, 1, False),
        ({"owned": {b"t" * 16: frozenset({0})}}, 1, False),
        ({"topics": None}, 1, False),
        ({"topics": None, "regex": "t.*"}, 1, True),
        ({"topics": ()}, 1, True),
        ({"member_epoch": 5, "rebalance_timeout_ms": -1, "owned": None, "topics": None}, 1, True),
        ({"member_epoch": -1, "owned": None}, 1, True),
        ({"member_epoch": -2}, 1, False),
        ({"member_epoch": -2, "instance_id": "i"}, 1, True),
        ({"member_epoch": -3}, 1, False),
        ({"member_epoch": -3, "instance_id": "i"}, 1, False),
    ],
)
def test_heartbeat_is_checked_before_its_group_is_asked(changes: dict[str, Any], version: int, is_valid: bool) -> None:
    request = JOINS._replace(**changes)
    if is_valid:
        check_request(request, version)
    else:
        with pytest.raises(KafkaError) as raised:
            check_request(request, version)
        assert raised.value.code is ErrorCode.INVALID_REQUEST
