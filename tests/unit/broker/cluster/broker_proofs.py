"""Connections between brokers whose other side asks for no proof."""

from __future__ import annotations

from odradek.client.network.connection import Connection


async def no_proof(_connection: Connection, _broker_id: int, _timeout_ms: float) -> None:
    """Send nothing: the peer is a fake that serves everybody."""
