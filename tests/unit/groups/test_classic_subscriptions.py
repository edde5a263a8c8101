"""What classic members subscribe to, as the coordinator reads it from their metadata."""

from __future__ import annotations

import pytest

from odradek.groups.subscriptions import read_subscription
from odradek.wire.messages.consumer_protocol import ConsumerProtocolSubscription


@pytest.mark.parametrize(("rack", "expected"), [("a", "a"), ("", None), (None, None)])
def test_rack_of_a_member_is_read(rack: str | None, expected: str | None) -> None:
    out = bytearray((3).to_bytes(2, "big"))
    ConsumerProtocolSubscription(["t"], None, [], rack_id=rack).encode(out, 3)
    assert read_subscription(bytes(out)).rack_id == expected
