"""A channel and its broker: what is sent when, what is sent again, and what counts as a death."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from odradek.broker.cluster.controller_channel import Connect, ControllerChannel, Differences, control_connections
from odradek.client.errors import ClientError, Disconnected, RequestTimedOut
from odradek.client.network.connection import Connection
from odradek.controller.notices import PartitionNews
from odradek.metadata.image import Broker, ClusterImage, Endpoint, PartitionState, Topic
from odradek.ports.network import TcpNetwork
from odradek.wire.errors import ErrorCode
from odradek.wire.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
from odradek.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from odradek.wire.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse
from tests.unit.broker.cluster.broker_proofs import no_proof
from tests.unit.metadata.images import with_partition

BROKER = Broker(2, 5, None, {"CONTROL": Endpoint("127.0.0.1", 9, "PLAINTEXT")})
ANSWERS: dict[type[Any], Callable[[int], Any]] = {
    LeaderAndIsrRequest: lambda code: LeaderAndIsrResponse(code, []),
    StopReplicaRequest: lambda code: StopReplicaResponse(code, []),
    UpdateMetadataRequest: UpdateMetadataResponse,
}


class Peer:
    """A broker and the connections to it. `script` has what happens to the next requests: an answer's code or an
    error.
    """

    def __init__(self) -> None:
        self.asked: list[Any] = []
        self.script: list[int | ClientError] = []
        self.connects: list[ClientError] = []
        self.connections: list[Peer.Line] = []
        self.events: list[object] = []
        self.acknowledged: list[int] = []
        self.gate: asyncio.Future[None] | None = None

    class Line:
        def __init__(self, peer: Peer) -> None:
            self.peer = peer
            self.listener: Callable[[Any], None] | None = None

        def request(self, request: Any, response_type: Any, version: int, timeout_ms: float) -> Awaitable[Any]:
            async def answer() -> Any:
                self.peer.asked.append(request)
                if self.peer.gate is not None:
                    await self.peer.gate
                outcome = self.peer.script.pop(0) if self.peer.script else 0
                if isinstance(outcome, ClientError):
                    self.close()
                    raise outcome
                return ANSWERS[type(request)](outcome)

            return asyncio.ensure_future(answer())

        def watch_close(self, listener: Callable[[Any], None] | None) -> None:
            self.listener = listener

        def close(self) -> None:
            if self.listener is not None:
                self.listener(self)

    async def connect(self, broker: Broker) -> Connection:
        assert broker is BROKER
        if self.connects:
            raise self.connects.pop(0)
        line = Peer.Line(self)
        self.connections.append(line)
        return cast(Connection, line)

    def broker_died(self, broker: Broker) -> None:
        self.events.append("died")

    def image_acknowledged(self, broker: Broker, version: int) -> None:
        self.acknowledged.append(version)

    def registration_ended(self, broker: Broker) -> None:
        self.events.append("registration ended")

    def deposed(self) -> None:
        self.events.append("deposed")

    def replicas_answered(self, broker: Broker, offline: list[PartitionNews], online: list[PartitionNews]) -> None:
        self.events.append((offline, online))

    def channel(self, connect: Connect | None = None) -> ControllerChannel:
        return ControllerChannel(BROKER, connect or self.connect, self, Differences())

    def kinds(self) -> list[str]:
        return [type(request).__name__.removesuffix("Request") for request in self.asked]


def refused() -> ClientError:
    error = Disconnected("refused")
    error.__cause__ = ConnectionRefusedError()
    return error


def image(*topics: Topic) -> ClusterImage:
    return ClusterImage("c").with_controller(1, 3).with_brokers({2: BROKER}).with_topics(topics)


def topic(name: str, *states: PartitionState, number: int = 1) -> Topic:
    return Topic(name, bytes([number]) * 16, states)


HERE = PartitionState(2, 0, (2, 1), (2, 1))
ELSEWHERE = PartitionState(1, 0, (1, 3), (1, 3))


def run(test: Callable[[Peer], Awaitable[None]]) -> None:
    async def main() -> None:
        await test(Peer())

    asyncio.run(main())


async def offer(channel: ControllerChannel, target: ClusterImage) -> None:
    channel.offer(target)
    async with asyncio.timeout(60):
        await channel.when_acknowledged(target.version)


def test_everything_first_and_then_what_changed() -> None:
    async def test(peer: Peer) -> None:
        channel = peer.channel()
        first = image(topic("a", HERE, ELSEWHERE))
        await offer(channel, first)
        lead, know = peer.asked
        assert (lead.type, lead.controller_id, lead.controller_epoch, lead.broker_epoch) == (2, 1, 3, 5)
        assert [p.partition_index for p in lead.topic_states[0].partition_states] == [0]
        assert [p.partition_index for p in know.topic_states[0].partition_states] == [0, 1]
        assert (know.type, [b.id for b in know.live_brokers]) == (2, [2])
        peer.asked.clear()
        shrunk = with_partition(first, "a", 0, HERE._replace(isr=(2,), partition_epoch=1))
        await offer(channel, shrunk)
        assert peer.kinds() == ["UpdateMetadata"], "its role is the same"
        peer.asked.clear()
        moved = with_partition(shrunk, "a", 0, PartitionState(1, 1, (1,), (1,), 2))
        moved = moved.with_topic(topic("b", HERE, number=2))
        await offer(channel, moved)
        assert peer.kinds() == ["StopReplica", "LeaderAndIsr", "UpdateMetadata"]
        assert peer.asked[0].topic_states[0].partition_states[0].delete_partition
        (new,) = peer.asked[1].topic_states
        assert (new.topic_name, new.partition_states[0].is_new, peer.asked[1].type) == ("b", True, 1)
        peer.asked.clear()
        gone = moved.without_topics(["b"]).with_topic(topic("b", HERE, number=3))
        await offer(channel, gone)
        assert peer.kinds() == ["StopReplica", "LeaderAndIsr", "UpdateMetadata"]
        assert [(t.topic_id[0], t.partition_states[0].leader) for t in peer.asked[2].topic_states] == [(2, -2), (3, 2)]
        peer.asked.clear()
        await offer(channel, gone.with_controller(1, 3))
        assert peer.asked == [], "nothing changed"
        assert len(peer.connections) == 1
        channel.close()

    run(test)


def test_changes_that_come_meanwhile_are_sent_as_one() -> None:
    async def test(peer: Peer) -> None:
        channel = peer.channel()
        await offer(channel, image())
        peer.asked.clear()
        peer.gate = asyncio.get_running_loop().create_future()
        first = image(topic("a", HERE))
        channel.offer(first)
        while not peer.asked:
            await asyncio.sleep(0)
        state = HERE
        last = first
        for epoch in range(1, 6):
            state = state._replace(leader_epoch=epoch, partition_epoch=epoch)
            last = with_partition(last, "a", 0, state)
            channel.offer(last)
        peer.gate.set_result(None)
        async with asyncio.timeout(60):
            await channel.when_acknowledged(last.version)
        assert peer.kinds() == ["LeaderAndIsr", "UpdateMetadata"] * 2
        assert peer.asked[2].topic_states[0].partition_states[0].leader_epoch == 5
        channel.close()

    run(test)


def test_image_that_was_not_acknowledged_is_sent_again() -> None:
    async def test(peer: Peer) -> None:
        channel = peer.channel()
        peer.script = [0, Disconnected("cut"), 0, ErrorCode.UNKNOWN_SERVER_ERROR]
        await offer(channel, image(topic("a", HERE)))
        assert peer.kinds() == ["LeaderAndIsr", "UpdateMetadata"] * 3
        assert len(peer.connections) == 2
        assert peer.events == []
        channel.close()

    run(test)


@pytest.mark.parametrize("failure", [Disconnected("cut"), ErrorCode.UNKNOWN_SERVER_ERROR])
def test_outdated_changes_that_may_have_been_sent_are_reverted(failure: int | ClientError) -> None:
    """Found by the simulator (handover-1100418): the broker kept a topic that was deleted before it had answered."""

    async def test(peer: Peer) -> None:
        channel = peer.channel()
        first = image(topic("a", HERE))
        await offer(channel, first)
        peer.asked.clear()
        peer.script = [0, failure]
        peer.gate = asyncio.get_running_loop().create_future()
        channel.offer(made := first.with_topic(topic("b", HERE, number=2)))
        while not peer.asked:
            await asyncio.sleep(0)
        channel.offer(last := made.without_topics(["b"]))
        peer.gate.set_result(None)
        async with asyncio.timeout(60):
            await channel.when_acknowledged(last.version)
        assert peer.kinds() == ["LeaderAndIsr", "UpdateMetadata"] * 2
        assert [t.topic_name for t in peer.asked[0].topic_states] == ["b"]
        assert (peer.asked[3].type, [t.topic_name for t in peer.asked[3].topic_states]) == (2, ["a"])
        channel.close()

    run(test)


def test_an_idle_connection_that_breaks_and_is_refused_is_a_death() -> None:
    async def test(peer: Peer) -> None:
        channel = peer.channel()
        await offer(channel, image())
        peer.connects = [refused()]
        peer.connections[0].close()
        async with asyncio.timeout(60):
            while not peer.events:
                await asyncio.sleep(0)
        assert peer.events == ["died"]
        assert len(peer.connections) == 1
        channel.close()

    run(test)


def test_repeated_death_notice_has_no_effect_until_the_broker_returns() -> None:
    """The store was away, or the broker was taken for dead though it was not."""

    async def test(peer: Peer) -> None:
        channel = peer.channel()
        await offer(channel, image())
        peer.connects = [refused(), refused(), Disconnected("no route")]
        peer.connections[0].close()
        target = image().with_topic(topic("a", HERE))
        await offer(channel, target)
        assert peer.events == ["died", "died"]
        assert channel.acknowledged is target
        channel.close()

    run(test)


def test_one_refused_connection_or_silence_proves_no_death() -> None:
    async def test(peer: Peer) -> None:
        channel = peer.channel()
        peer.connects = [refused(), RequestTimedOut("slow"), Disconnected("no route")]
        await offer(channel, image())
        assert peer.events == []
        peer.connects = [RequestTimedOut("slow"), Disconnected("no route")]
        peer.connections[-1].close()
        again = image(topic("a", HERE))
        await offer(channel, again)
        assert peer.events == []
        channel.close()

    run(test)


def test_broker_that_does_not_know_the_election_yet_gets_it_again() -> None:
    """Its server of the store lags behind. A controller that is deposed indeed closes the channel."""

    async def test(peer: Peer) -> None:
        channel = peer.channel()
        peer.script = [ErrorCode.STALE_CONTROLLER_EPOCH]
        await offer(channel, image(topic("a", HERE)))
        assert peer.events == ["deposed"]
        assert peer.kinds() == ["LeaderAndIsr", "LeaderAndIsr", "UpdateMetadata"]
        assert len(peer.connections) == 2, "an older connection than another one would be refused for ever"
        channel.close()

    run(test)


@pytest.mark.parametrize(
    ("code", "event"),
    [
        (ErrorCode.STALE_CONTROLLER_EPOCH, "deposed"),
        (ErrorCode.STALE_BROKER_EPOCH, "registration ended"),
    ],
)
def test_broker_rejects_an_image_of_the_wrong_controller(code: ErrorCode, event: str) -> None:
    async def test(peer: Peer) -> None:
        channel = peer.channel()
        peer.script = [code]
        channel.offer(image(topic("a", HERE)))
        while not peer.events:
            await asyncio.sleep(0)
        waiting = channel.when_acknowledged(1 << 30)
        channel.close()
        assert peer.events == [event]
        assert waiting.done(), "no task waits for a channel that is closed"
        assert len(peer.asked) == 1

    run(test)


@pytest.mark.parametrize("uvloop", [False, True])
def test_a_closed_port_is_a_refusal(uvloop: bool) -> None:
    async def test() -> None:
        connect = control_connections(TcpNetwork(), "CONTROL", 1, no_proof)
        # Bound, so that no other process listens there meanwhile.
        with socket.socket() as bound:
            bound.bind(("127.0.0.1", 0))
            port = bound.getsockname()[1]
            with pytest.raises(Disconnected) as raised:
                await connect(BROKER._replace(endpoints={"CONTROL": Endpoint("127.0.0.1", port, "PLAINTEXT")}))
        assert isinstance(raised.value.__cause__, ConnectionRefusedError)
        with pytest.raises(Disconnected, match="broker 2 has no listener CONTROL"):
            await connect(BROKER._replace(endpoints={}))

    if uvloop:
        pytest.importorskip("uvloop").run(test())
    else:
        asyncio.run(test())
