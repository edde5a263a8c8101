"""How the admin client's requests reach the right broker, and how their error codes become values."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar

from odradek.client.errors import CallTimedOut, TransportError
from odradek.client.network.cluster import (
    GROUP_COORDINATOR,
    TRANSACTION_COORDINATOR,
    Cluster,
    error_of,
    is_stale_metadata,
)
from odradek.client.network.connection import Request, Response
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")
K = TypeVar("K")

_KINDS = {GROUP_COORDINATOR: "group", TRANSACTION_COORDINATOR: "transactional id"}


def failure_of(code: int, message: str | None = None) -> KafkaError | None:
    """The error of a code, or None for NONE."""
    return error_of(code, message) if code else None


def raise_failure(code: int, message: str | None = None) -> None:
    """Raise the KafkaError of a code other than NONE."""
    if code:
        raise error_of(code, message)


def raise_first(results: Mapping[K, T | KafkaError]) -> dict[K, T]:
    """The results, if none is an error; else raises the first error.

    Example:

        async with Admin(bootstrap_servers="127.0.0.1:9092") as admin:
            described = raise_first(await admin.describe_topics(["orders"]))
            print(described["orders"].partitions[0].leader)
    """
    checked: dict[K, T] = {}
    for key, result in results.items():
        if isinstance(result, KafkaError):
            raise result
        checked[key] = result
    return checked


def api_name(request: Request) -> str:
    """The API's name for messages, for instance `ElectLeaders`."""
    return type(request).__name__.removesuffix("Request")


class AdminRequests:
    """Sends requests of the admin client, retried until `default_api_timeout_ms`; shared by all its subjects."""

    __slots__ = ("_cluster",)

    def __init__(self, cluster: Callable[[], Cluster]) -> None:
        self._cluster = cluster

    @property
    def cluster(self) -> Cluster:
        """Connections and metadata. Raises IllegalState before the client is started."""
        return self._cluster()

    async def to_any(self, request: Request, response_type: type[Response]) -> Response:
        """Send to some broker. Raises KafkaError, ClientError."""
        cluster = self.cluster
        return await cluster.retrying(lambda: cluster.request_any(request, response_type), api_name(request))

    async def to_broker(self, broker_id: int, request: Request, response_type: type[Response]) -> Response:
        """Send to one broker. Raises KafkaError, ClientError."""
        cluster = self.cluster

        async def attempt() -> Response:
            if broker_id not in cluster.connections.brokers:
                await cluster.refresh_metadata()
            return await cluster.request(broker_id, request, response_type)

        return await cluster.retrying(attempt, api_name(request))

    async def to_controller(
        self,
        request: Request,
        response_type: type[Response],
        *,
        codes: Callable[[Response], Iterable[int]] | None = None,
        adapt: Callable[[Any, int], None] | None = None,
    ) -> Response:
        """Send to the controller, again if that broker is not the controller.

        `codes` lists the answer's error codes (default: its `error_code`). `adapt(request, version)` changes what
        depends on the version. Raises KafkaError, ClientError.
        """
        cluster = self.cluster

        async def attempt() -> Response:
            controller = await cluster.controller()
            try:
                connection = await cluster.connections.get(controller)
                if adapt is not None:
                    adapt(request, connection.version_of(type(request)))
                response = await cluster.ask(connection, request, response_type)
            except TransportError:
                # It may have died: another broker is the controller then.
                cluster.want_metadata()
                raise
            found = [getattr(response, "error_code", 0)] if codes is None else codes(response)
            if ErrorCode.NOT_CONTROLLER in found:
                await cluster.refresh_metadata()
                raise error_of(ErrorCode.NOT_CONTROLLER)
            return response

        return await cluster.retrying(attempt, api_name(request))

    async def to_coordinator(
        self,
        kind: int,
        key: str,
        request: Request,
        response_type: type[Response],
        *,
        code: Callable[[Response], int],
    ) -> Response:
        """Send to the coordinator of a group or transactional id, again while `code(answer)` is a retriable error.

        Any other error is left in the answer. Raises ClientError, and KafkaError of the search for the coordinator.
        """
        cluster = self.cluster

        async def attempt() -> Response:
            response = await cluster.request_coordinator(kind, key, request, response_type)
            found = code(response)
            if found and error_of(found).retriable:
                cluster.check_coordinator(kind, key, found)
            return response

        return await cluster.retrying(attempt, f"{api_name(request)} of {_KINDS[kind]} {key}")

    async def to_leaders(
        self,
        partitions: Iterable[TopicPartition],
        what: str,
        ask: Callable[[int, list[TopicPartition]], Awaitable[Mapping[TopicPartition, T | KafkaError]]],
    ) -> dict[TopicPartition, T | KafkaError]:
        """Results of partitions, as `ask(broker id, partitions)` gets them of their leaders.

        Those that have no leader, or whose leader has changed or cannot be reached, are asked for again until the time
        is over. Raises CallTimedOut when no broker answered, ClientError.
        """
        cluster, wanted = self.cluster, list(partitions)
        done: dict[TopicPartition, T | KafkaError] = {}
        failed: dict[TopicPartition, KafkaError] = {}
        unreachable: dict[TopicPartition, TransportError] = {}

        async def ask_one(node_id: int, keys: list[TopicPartition]) -> None:
            try:
                answers = await ask(node_id, keys)
            except TransportError as error:
                unreachable.update(dict.fromkeys(keys, error))
                return
            for key, answer in answers.items():
                unreachable.pop(key, None)
                if isinstance(answer, KafkaError) and answer.retriable:
                    failed[key] = answer
                else:
                    done[key] = answer

        async def attempt() -> None:
            leaders, lacking = await cluster.leaders(key for key in wanted if key not in done)
            for key, error in lacking.items():
                unreachable.pop(key, None)
                (failed if error.retriable else done)[key] = error
            await asyncio.gather(*(ask_one(node_id, keys) for node_id, keys in leaders.items()))
            left = [key for key in wanted if key not in done]
            if any(key in unreachable or is_stale_metadata(failed[key].code) for key in left):
                await cluster.refresh_metadata()
            for key in left:
                raise unreachable.get(key) or failed[key]

        try:
            await cluster.retrying(attempt, what)
        except CallTimedOut:
            if not done and not failed:
                raise
        for key, error in unreachable.items():
            failed[key] = error_of(ErrorCode.REQUEST_TIMED_OUT, f"{key}: {error}")
        return {key: done[key] if key in done else failed[key] for key in wanted}

    async def broker_ids(self) -> list[int]:
        """Ids of the live brokers, sorted, as a broker reports them now."""
        cluster = self.cluster
        await cluster.retrying(cluster.refresh_metadata, "Metadata")
        return sorted(cluster.metadata.brokers)
