"""Bugs of the audit topic that are planted on purpose: see `planted`, which searches them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

from odradek.broker.delivery.record_queue import Waiting
from odradek.broker.delivery.topic_writer import BATCH_BYTES, RETRY_SECONDS
from odradek.client.errors import TransportError
from odradek.security.errors import SaslError
from odradek.security.plain import parse_plain
from odradek.sim.planted.cluster_bugs import Row
from odradek.wire.errors import KafkaError

AUDIT_BUGS: Final[list[Row]] = []

_PROFILE: Final = "audit"
_QUEUE: Final = "odradek.broker.delivery.record_queue:RecordQueue"
_WRITER: Final = "odradek.broker.delivery.topic_writer:TopicWriter"
_TRAIL: Final = "odradek.api.audit.trail:AuditTrail"


def _bug(name: str, story: str, *targets: str) -> Callable[[Callable[[Any], Any]], None]:
    def register(make: Callable[[Any], Any]) -> None:
        AUDIT_BUGS.append((name, story, _PROFILE, targets, make))

    return register


@_bug("failed writes count as written", "a batch of audit events is given up after one failure", f"{_WRITER}._attempt")
def _(right: Any) -> Any:
    async def attempt(self: Any) -> None:
        count, batch = self._queue.next_batch(BATCH_BYTES)
        try:
            await self._write(batch)
        except (KafkaError, TransportError):
            await asyncio.sleep(RETRY_SECONDS)
        self._queue.complete(count)

    return attempt


@_bug("newest events first", "an audit event overtakes those that wait longer", f"{_QUEUE}.offer")
def _(right: Any) -> Any:
    def offer(self: Any, time_ms: int, value: bytes, key: bytes | None = None, headers: Any = ()) -> bool:
        accepted: bool = right(self, time_ms, value, key, headers)
        if accepted and len(self) > 1:
            self._records.insert(len(self) - 2, self._records.pop())
        return accepted

    return offer


@_bug("losses not counted", "a full queue drops audit events and counts nothing", f"{_QUEUE}.offer")
def _(right: Any) -> Any:
    def offer(self: Any, time_ms: int, value: bytes, key: bytes | None = None, headers: Any = ()) -> bool:
        if self.size + Waiting(time_ms, key, value, headers).size > self._most_bytes():
            return False
        return bool(right(self, time_ms, value, key, headers))

    return offer


@_bug("forwarded changes unrecorded", "the controller does not record changes that another broker forwards",
      "odradek.api.audit.endpoints:_record")  # fmt: skip
def _(right: Any) -> Any:
    def record(trail: Any, key: Any, describe: Any, served: Any, context: Any) -> None:
        if type(context.connection).__name__ != "ForwardedClient":
            right(trail, key, describe, served, context)

    return record


@_bug("denials recorded twice", "a denial has two audit events", f"{_TRAIL}.denied")
def _(right: Any) -> Any:
    def denied(self: Any, question: Any, decision: Any, *, is_enforced: bool) -> None:
        right(self, question, decision, is_enforced=is_enforced)
        right(self, question, decision, is_enforced=is_enforced)

    return denied


@_bug("failed logins as good ones", "a rejected login is recorded as one that succeeded", f"{_TRAIL}.login_failed")
def _(right: Any) -> Any:
    def login_failed(self: Any, host: str, listener: str, mechanism: str, claimed: str | None, reason: str) -> None:
        self._emit("login", f"User:{claimed}", host, listener=listener, mechanism=mechanism)

    return login_failed


@_bug("password in the audit", "a rejected login is recorded with the password that the client gave",
      "odradek.broker.security.exchanges:PlainLogin.step")  # fmt: skip
def _(right: Any) -> Any:
    async def step(self: Any, message: bytes) -> Any:
        try:
            return await right(self, message)
        except SaslError:
            self.claimed = " ".join(parse_plain(message))
            raise

    return step
