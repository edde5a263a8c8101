"""Brokers of a KRaft cluster in the simulator: the model of their controllers, fixed seeds, and planted bugs."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from odradek.broker.quorum.broker_requests import BrokerRequests
from odradek.kraft.checkpoints import CheckpointId
from odradek.kraft.metadata_observer import BEGINNING, LogEnd
from odradek.metadata.image import ClusterImage, PartitionState, Topic
from odradek.metadata.kraft.difference import difference
from odradek.sim.checkers.heartbeats import judged_heartbeats
from odradek.sim.controllers.model_log import ModelLog, encode_batch_of
from odradek.sim.planted.broker_bugs import BUGS, SEED_LIMIT, search
from odradek.sim.run import run_seed
from odradek.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse

QUICK = (
    "partial transaction applied",
    "earlier registration obeyed",
    "uncommitted metadata applied",
    "unfenced at once",
    "failed controller stays active",
    "fenced broker leads",
    "directories of moved replicas not named",
)
EMPTY = ClusterImage("cluster")


def with_topic(image: ClusterImage, name: str) -> ClusterImage:
    return image.with_topic(Topic(name, name.encode().ljust(16, b"-"), (PartitionState(1, 0, (1,), (1,)),)))


def a_log(*epochs: int) -> ModelLog:
    """A log with a batch of two records for each epoch."""
    log, image = ModelLog(EMPTY), EMPTY
    for number, epoch in enumerate(epochs):
        before, image = image, with_topic(image, f"t{number}")
        log.batches.append(encode_batch_of(difference(before, image), log.end.offset, epoch, 0, image))
    return log


@pytest.mark.parametrize("profile", ["kraft", "kraft-dark", "controllers", "controller-disks", "early", "at-once"])
def test_brokers_of_a_simulated_quorum_keep_all_promises(profile: str) -> None:
    outcome = run_seed(2, profile, safety_seconds=12)
    assert not outcome.violation, f"{outcome.seed}: {outcome.violation}: {outcome.story}"
    assert outcome.acked > 50
    assert outcome.marks["all replicas in sync"]


@pytest.mark.parametrize("name", QUICK)
def test_planted_bugs_of_quorum_brokers_are_found(name: str) -> None:
    found = search(next(bug for bug in BUGS if bug.name == name), SEED_LIMIT)
    assert found.violation, f"not within {found.seeds} seeds"


@pytest.mark.parametrize("reported", [41, 42])
def test_answer_to_a_late_heartbeat_is_judged_by_all_that_came(monkeypatch: pytest.MonkeyPatch, reported: int) -> None:
    """Registered at 42. A slow connection delays the heartbeat that has not reached it, after one that has, or not."""

    async def unfenced(_self: Any, _request: Any, _connection: int) -> BrokerHeartbeatResponse:
        return BrokerHeartbeatResponse(is_fenced=False)

    monkeypatch.setattr(BrokerRequests, "heartbeat", unfenced)
    loop = SimpleNamespace(broken=None)
    controllers = SimpleNamespace(heartbeats_at={}, unfenced_at={})
    world: Any = SimpleNamespace(
        brokers=[SimpleNamespace(is_up=False)], loop=loop, controllers=controllers, now=lambda: 7.0
    )

    async def send(offset: int) -> None:
        request = BrokerHeartbeatRequest(
            broker_id=1, broker_epoch=42, current_metadata_offset=offset, want_fence=offset < 42
        )
        await BrokerRequests.heartbeat(cast(Any, None), request, 0)

    with judged_heartbeats(world):
        asyncio.run(send(reported))
        asyncio.run(send(40))
    assert (loop.broken is None) == (reported == 42)
    assert controllers.heartbeats_at == controllers.unfenced_at == {(1, 42): 7.0}
    assert BrokerRequests.heartbeat is unfenced


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        (BEGINNING, None),
        (LogEnd(4, 1), None),
        (LogEnd(2, 1), None),
        (LogEnd(6, 1), LogEnd(4, 1)),
        (LogEnd(6, 2), LogEnd(4, 1)),
        (LogEnd(6, 3), None),
        (LogEnd(8, 3), LogEnd(6, 3)),
    ],
)
def test_model_log_names_the_end_of_the_last_common_epoch(end: LogEnd, expected: LogEnd | None) -> None:
    assert a_log(1, 1, 3).diverging(end) == expected


def test_model_log_begins_with_its_snapshot() -> None:
    log = a_log(1, 1, 3)
    assert log.take_snapshot(4, 0)
    assert log.snapshot is not None
    assert log.snapshot.id == CheckpointId(4, 1)
    assert log.needs_snapshot(LogEnd(2, 1))
    assert log.needs_snapshot(LogEnd(4, 2))
    assert not log.needs_snapshot(LogEnd(4, 1))
    assert not difference(log.image, log.replayed())
    assert not log.take_snapshot(5, 0)


def test_model_log_takes_no_snapshot_inside_a_transaction() -> None:
    log = a_log(1)
    log.batches[0] = log.batches[0]._replace(is_open=True)
    assert not log.take_snapshot(2, 0)


def test_model_log_reads_at_least_one_batch() -> None:
    log = a_log(1, 1)
    assert log.read(0, 1) == log.batches[0].data
    assert log.read(2, 1) == log.batches[1].data
    assert log.read(4, 1) == b""
