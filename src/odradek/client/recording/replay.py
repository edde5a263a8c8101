"""Sending a recording's requests again, in their order, and comparing the answers.

A request waits for the answers that had arrived before it was recorded. Topic ids, producer ids, members and fetch
sessions are those of the repetition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from odradek.client.errors import ClientError
from odradek.client.network.cluster import Cluster
from odradek.client.recording.comparison import Identities, differences
from odradek.client.recording.documents import SECRET_APIS
from odradek.client.recording.exchanges import Exchange, RecordingError
from odradek.records.errors import CorruptRecords
from odradek.wire.apis import APIS, ApiKey, request_class, response_class
from odradek.wire.primitives import DecodeError

_SKIPPED: Final = frozenset({ApiKey.SASL_HANDSHAKE, *SECRET_APIS})
"""The client that replays logs in by itself, and what may hold secrets is not recorded."""
_TIMEOUT_MS: Final = 60_000
_UNSUPPORTED_VERSION: Final = (35).to_bytes(2, "big")


class ReplayedRequest(NamedTuple):
    """The result of one recorded request."""

    exchange: Exchange
    differences: list[str]
    skipped: str | None = None
    """Why it was not sent, None if it was."""


class Replay:
    """Sends the requests of one recording to one cluster."""

    __slots__ = ("_answers", "_cluster", "_identities", "_outcomes")

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._identities = Identities()
        self._answers: dict[int, tuple[Exchange, asyncio.Task[None]]] = {}
        self._outcomes: dict[int, ReplayedRequest] = {}

    async def run(self, exchanges: Sequence[Exchange]) -> list[ReplayedRequest]:
        """The outcomes in the order of the requests. Raises ClientError when no broker can be reached."""
        await self._cluster.refresh_metadata()
        try:
            for exchange in exchanges:
                why = _reason_to_skip(exchange)
                if why is not None:
                    self._outcomes[exchange.number] = ReplayedRequest(exchange, [], why)
                    continue
                await self._wait_for_earlier(exchange)
                await self._send(exchange)
            await asyncio.gather(*(task for _, task in self._answers.values()))
        finally:
            for _, task in self._answers.values():
                task.cancel()
        return [self._outcomes[number] for number in sorted(self._outcomes)]

    async def _wait_for_earlier(self, exchange: Exchange) -> None:
        """Wait for the answers that had arrived when this request was recorded."""
        for number, (earlier, task) in list(self._answers.items()):
            if earlier.answered_s is not None and earlier.answered_s <= exchange.sent_s:
                await task
                del self._answers[number]

    async def _send(self, exchange: Exchange) -> None:
        kind = request_class(exchange.key)
        assert exchange.request_bytes is not None
        try:
            request, _ = kind.decode(memoryview(exchange.request_bytes), 0, exchange.version)
            self._identities.replace(request)
        except (DecodeError, CorruptRecords) as error:
            raise RecordingError(f"request {exchange.number} cannot be read: {error}") from error
        known = self._cluster.metadata.brokers
        purpose = f"replay-{exchange.connection}"
        try:
            node_id = exchange.broker if exchange.broker in known else next(iter(known))
            connection = await self._cluster.connections.get(node_id, purpose)
        except ClientError as error:
            self._outcomes[exchange.number] = ReplayedRequest(exchange, [f"no connection: {error}"])
            return
        offered = connection.versions.get(exchange.key)
        if offered is None or not offered.min_version <= exchange.version <= offered.max_version:
            found = "does not offer it" if offered is None else f"offers {offered.min_version} to {offered.max_version}"
            self._outcomes[exchange.number] = ReplayedRequest(
                exchange, [f"version {exchange.version}: the broker {found}"]
            )
            return
        without_answer = exchange.key == ApiKey.PRODUCE and getattr(request, "acks", 1) == 0
        if without_answer:
            connection.send(request, None, exchange.version, _TIMEOUT_MS, lambda _: None)
            self._outcomes[exchange.number] = ReplayedRequest(exchange, [])
            return
        # The request leaves before the next one does, so that the order of a connection is the recorded one.
        answer = connection.request(request, response_class(exchange.key), exchange.version, _TIMEOUT_MS)
        task = asyncio.get_running_loop().create_task(self._compare(exchange, answer))
        self._answers[exchange.number] = exchange, task

    async def _compare(self, exchange: Exchange, answer: asyncio.Future[Any]) -> None:
        try:
            repeated = await answer
        except ClientError as error:
            found = [f"no answer: {error}"] if exchange.answered_s is not None else []
            self._outcomes[exchange.number] = ReplayedRequest(exchange, found)
            return
        if exchange.response_bytes is None:
            self._outcomes[exchange.number] = ReplayedRequest(exchange, [])
            return
        recorded = _response_of(exchange)
        self._identities.learn(recorded, repeated)
        self._outcomes[exchange.number] = ReplayedRequest(exchange, list(differences(exchange.key, recorded, repeated)))


def _reason_to_skip(exchange: Exchange) -> str | None:
    if exchange.key in _SKIPPED:
        return "logins and messages that may hold secrets are not repeated"
    if exchange.key not in APIS or exchange.request is None or exchange.request_bytes is None:
        return "the proxy did not know this API or version"
    return None


def _response_of(exchange: Exchange) -> Any:
    assert exchange.response_bytes is not None
    version = exchange.version
    if exchange.key == ApiKey.API_VERSIONS and exchange.response_bytes[:2] == _UNSUPPORTED_VERSION:
        version = 0
    try:
        return response_class(exchange.key).decode(memoryview(exchange.response_bytes), 0, version)[0]
    except DecodeError as error:
        raise RecordingError(f"the answer to request {exchange.number} cannot be read: {error}") from error
