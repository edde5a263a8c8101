"""./dev bench requests: the broker's processor time for one request, by API, without sockets and without a client.

A broker reads prepared frames from a stream in memory, 20 at a time, as a busy connection has them, and its log is on a
memory file system where there is one. The figure is the time of the process from the first byte of a frame to the
last one of its answer, in the fastest of many blocks of 2,000 requests: other programs on the machine can only add.

--settings measures a broker with an authorizer and 10,000 ACLs, or with the audit topic as well, in turns with a plain
one, each time in a new process, and prints the differences. --against DIRECTORY does the same with the sources of
another checkout, and prints the ratios. `loops` are empty Python loops of 100 turns, timed beside the blocks: machines
differ less in them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from bench.cases.synchronous import record_batch
from bench.frames import answer_to, ask, exchange, frame
from bench.memory_network import MemoryNetwork, MemoryStream
from bench.transaction_cost import Transactions
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.broker.ports import Ports
from odradek.metadata.stores.memory_store import MemoryStore, MemoryTree
from odradek.wire.messages import api_versions as versions
from odradek.wire.messages import (
    create_acls,
    create_topics,
    fetch,
    find_coordinator,
    heartbeat,
    join_group,
    metadata,
    produce,
    sync_group,
)
from odradek.wire.messages import offset_commit as commit

BURST = 20
"""Requests that the broker finds in the stream at once."""
BURSTS = 100
"""Bursts of a block."""
TOPIC = "one"
EMPTY = "empty"
TRANSACTIONS = "transactions"
TRANSACTION = "transaction"
GROUP = "bench"
OTHER_GROUP = "other"
CASES = {
    "produce acks=1": "one record of 100 bytes",
    "produce acks=all": "the same, answered when it is committed",
    "produce 100 KB": "one record of 100,000 bytes, acks=1; not run unless named, as its blocks are 200 MB each",
    "fetch": "one batch of one record",
    "fetch by id": "the same, with the topic's id",
    "fetch at the end": "of a fetch session, without waiting for records",
    "heartbeat": "of a classic group's member",
    "offset commit": "of one partition, by no member",
    "metadata": "of one topic of one partition",
    "api versions": "",
    TRANSACTION: "of transactions of one record, whose three requests (older protocol) are counted one by one",
}
USUAL_CASES = [name for name in CASES if name != "produce 100 KB"]
PLAIN = "plain"
SETTINGS: dict[str, dict[str, str]] = {
    PLAIN: {},
    "authorizer": {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    },
    "audit": {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "odradek.audit.topic.enable": "true",
        "odradek.audit.topic.replication.factor": "1",
        "odradek.audit.topic.min.isr": "1",
    },
}
ACLS = 10_000
"""With an authorizer: topics that have an ACL. ACLs allow the client, who is no super user, what it does."""
ACLS_AT_ONCE = 2_000
_MEMORY = Path("/dev/shm")
Make = Callable[[int], bytes]
"""The frame of a case's request with this number."""


async def make_acls(stream: MemoryStream) -> None:
    acls = [
        create_acls.CreateAclsRequestCreation(2, f"topic-{number}", 3, f"User:user-{number % 100}", "*", 3, 3)
        for number in range(ACLS)
    ]
    own = [(2, TOPIC), (2, EMPTY), (2, TRANSACTIONS), (3, GROUP), (3, OTHER_GROUP)]
    own += [(5, f"id-{number}") for number in range(BURST)]
    acls += [create_acls.CreateAclsRequestCreation(kind, name, 3, "User:ANONYMOUS", "*", 2, 3) for kind, name in own]
    for first in range(0, len(acls), ACLS_AT_ONCE):
        wanted = create_acls.CreateAclsRequest(acls[first : first + ACLS_AT_ONCE])
        made = await ask(stream, wanted, create_acls.CreateAclsResponse, 2)
        if any(each.error_code for each in made.results):
            raise RuntimeError(f"the ACLs were not created: {made.results[0]}")


async def make_topics(stream: MemoryStream) -> bytes:
    """Returns the id of `TOPIC`."""
    topics = [create_topics.CreateTopicsRequestTopic(name, 1, 1) for name in (TOPIC, EMPTY, TRANSACTIONS)]
    created = await ask(
        stream, create_topics.CreateTopicsRequest(topics, 10_000), create_topics.CreateTopicsResponse, 7
    )
    if any(each.error_code for each in created.topics):
        raise RuntimeError(f"the topics were not created: {created}")
    first = frame_of_produce(-1)
    while int.from_bytes((await answer_to(stream, first))[9 + 2 + len(TOPIC) + 1 + 4 :][:2], "big"):
        await asyncio.sleep(0.01)
    return created.topics[0].topic_id


async def join(stream: MemoryStream) -> tuple[int, str]:
    """Generation and member id of the group's only member."""
    protocols = [join_group.JoinGroupRequestProtocol("range", b"")]
    wanted = join_group.JoinGroupRequest(GROUP, 600_000, 600_000, "", None, "consumer", protocols)
    # The answer to this makes the topic of groups.
    while (
        await ask(stream, find_coordinator.FindCoordinatorRequest(GROUP), find_coordinator.FindCoordinatorResponse, 2)
    ).error_code:
        await asyncio.sleep(0.01)
    while (joined := await ask(stream, wanted, join_group.JoinGroupResponse, 3)).error_code:
        await asyncio.sleep(0.01)
    generation, member = joined.generation_id, joined.member_id
    mine = [sync_group.SyncGroupRequestAssignment(member, b"")]
    await ask(stream, sync_group.SyncGroupRequest(GROUP, generation, member, None, None, None, mine),
              sync_group.SyncGroupResponse, 3)  # fmt: skip
    return generation, member


def frame_of_produce(acks: int, size: int = 100) -> bytes:
    rows = [produce.ProduceRequestPartition(0, record_batch(b"x" * size))]
    return frame(
        produce.ProduceRequest(None, acks, 30_000, [produce.ProduceRequestTopic(TOPIC, partition_data=rows)]), 9
    )


def frame_of_fetch(topic: str, session_id: int = 0, epoch: int = -1, topic_id: bytes | None = None) -> bytes:
    rows = [fetch.FetchRequestPartition(0, fetch_offset=0, partition_max_bytes=1)]
    topics = [fetch.FetchRequestTopic(topic, topic_id or bytes(16), rows)] if epoch <= 0 else []
    wanted = fetch.FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_id=session_id, session_epoch=epoch, topics=topics
    )
    return frame(wanted, 12 if topic_id is None else 13)


async def makers(stream: MemoryStream) -> dict[str, Make]:
    """The requests of each case, once the topic, the group and the fetch session exist."""
    topic_id = await make_topics(stream)
    generation, member = await join(stream)
    begun = await answer_to(stream, frame_of_fetch(EMPTY, epoch=0))
    session_id = int.from_bytes(begun[4 + 5 + 4 + 2 :][:4], "big")
    session_epoch = 0

    def next_in_session(_number: int) -> bytes:
        nonlocal session_epoch
        session_epoch += 1
        return frame_of_fetch(EMPTY, session_id, session_epoch)

    row = commit.OffsetCommitRequestPartition(0, 5)
    topics = [commit.OffsetCommitRequestTopic(TOPIC, partitions=[row])]
    fixed = {
        "produce acks=1": frame_of_produce(1),
        "produce acks=all": frame_of_produce(-1),
        "produce 100 KB": frame_of_produce(1, 100_000),
        "fetch": frame_of_fetch(TOPIC),
        "fetch by id": frame_of_fetch(TOPIC, topic_id=topic_id),
        "heartbeat": frame(heartbeat.HeartbeatRequest(GROUP, generation, member), 3),
        "offset commit": frame(commit.OffsetCommitRequest(OTHER_GROUP, -1, "", topics=topics), 7),
        "metadata": frame(metadata.MetadataRequest([metadata.MetadataRequestTopic(name=TOPIC)]), 8),
        "api versions": frame(versions.ApiVersionsRequest("bench", "1"), 3),
    }

    def repeat(made: bytes) -> Make:
        return lambda _number: made

    return {"fetch at the end": next_in_session} | {name: repeat(made) for name, made in fixed.items()}


async def block(stream: MemoryStream, make: Make, answer_bytes: int) -> float:
    """Microseconds of the process per request, over a block of them."""
    bursts = [b"".join(make(number) for number in range(BURST)) for _ in range(BURSTS)]
    burst_bytes = BURST * answer_bytes
    began = time.process_time_ns()
    for burst in bursts:
        await exchange(stream, burst, burst_bytes)
    return (time.process_time_ns() - began) / (BURST * BURSTS) / 1000


def loop_of_100() -> float:
    """Microseconds of an empty loop of 100 turns."""
    began = time.process_time_ns()
    for _ in range(200):
        for _ in range(100):
            pass
    return (time.process_time_ns() - began) / 200 / 1000


async def measure(
    cases: list[str], blocks: int, settings: dict[str, str], begins: Callable[[int], None] = lambda _number: None
) -> dict[str, list[float]]:
    """Microseconds per request of every block, by case; `loops` of the loop.

    `begins` is called before the blocks of each number, from 0 on.
    """
    figures: dict[str, list[float]] = {"loops": []}
    with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
        given = {"node.id": "1", "log.dirs": folder, "listeners": "PLAINTEXT://127.0.0.1:9092", **settings}
        given |= {"offsets.topic.num.partitions": "1", "group.initial.rebalance.delay.ms": "0"}
        given |= {"group.max.session.timeout.ms": "1800000", "transaction.state.log.num.partitions": "1"}
        network = MemoryNetwork()
        broker = Broker(BrokerConfig(given, is_single=True), Ports(network=network, store=MemoryStore(MemoryTree())))
        await broker.start()
        stream = network.connect_to()
        if "authorizer.class.name" in settings:
            await make_acls(stream)
        found = await makers(stream)
        sizes = {name: len(await answer_to(stream, found[name](0))) for name in cases if name in found}
        transactions = Transactions(stream, TRANSACTIONS, BURST)
        if TRANSACTION in cases:
            await transactions.begin()
        for number in range(blocks):
            begins(number)
            # The cases in turns: what disturbs for a while disturbs all of them.
            figures["loops"].append(loop_of_100())
            for name in cases:
                if name == TRANSACTION:
                    took = await transactions.microseconds(BURSTS // 3)
                else:
                    took = await block(stream, found[name], sizes[name])
                figures.setdefault(name, []).append(took)
        await broker.stop()
    return figures


class Variant(NamedTuple):
    """What is measured."""

    source: Path
    """The folder of the package."""
    settings: str
    """A key of `SETTINGS`."""


def in_new_process(arguments: argparse.Namespace, variant: Variant) -> dict[str, list[float]]:
    """The figures of one run."""
    command = [sys.executable, "-m", "bench.request_cost", "--worker", "--blocks", str(arguments.blocks)]
    command += ["--settings", variant.settings, *arguments.case]
    environment = os.environ | {"PYTHONPATH": str(variant.source)}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    figures: dict[str, list[float]] = json.loads(done.stdout)
    return figures


def compare(arguments: argparse.Namespace) -> None:
    """Measure in turns, and print a table."""
    here = Path(__file__).parents[1] / "src"
    variants, others = [Variant(here, arguments.settings)], []
    if arguments.against is not None:
        variants.append(Variant(arguments.against / "src", arguments.settings))
        others = ["against", "ratio", "worst pair"]
    elif arguments.settings != PLAIN:
        variants.append(Variant(here, PLAIN))
        others = [PLAIN, "more, µs", "median pair"]
    runs: list[list[dict[str, list[float]]]] = [[] for _ in variants]
    for number in range(arguments.rounds):
        for index in range(len(variants)) if number % 2 else reversed(range(len(variants))):
            runs[index].append(in_new_process(arguments, variants[index]))
    table = Table(title=f"processor time per request, µs ({arguments.settings}; load {os.getloadavg()[0]:.1f})")
    for column in ("request", "least", "median", "loops", *others):
        table.add_column(column, justify="left" if column == "request" else "right")
    unit = min(value for run in runs[0] for value in run["loops"])
    for name in runs[0][0]:
        least = [[min(run[name]) for run in each] for each in runs]
        mine = min(least[0])
        row = [name, f"{mine:.2f}", f"{median(v for run in runs[0] for v in run[name]):.2f}", f"{mine / unit:.1f}"]
        if arguments.against is not None:
            worst = max(a / b for a, b in zip(*least, strict=True))
            row += [f"{min(least[1]):.2f}", f"{mine / min(least[1]):.3f}", f"{worst:.3f}"]
        elif others:
            typical = median(a - b for a, b in zip(*least, strict=True))
            row += [f"{min(least[1]):.2f}", f"{mine - min(least[1]):+.2f}", f"{typical:+.2f}"]
        table.add_row(*row)
    Console(width=None if sys.stdout.isatty() else 110).print(table)


def main(argv: list[str] | None = None) -> int:
    cases = "\n".join(f"  {name:16} {what}" for name, what in CASES.items())
    parser = argparse.ArgumentParser(
        prog="./dev bench requests",
        description=f"{__doc__}\nCases:\n{cases}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("case", nargs="*", help="default: all")
    parser.add_argument("--against", type=Path, metavar="DIRECTORY", help="another checkout")
    parser.add_argument("--settings", choices=SETTINGS, default=PLAIN, help="the broker's (plain)")
    parser.add_argument("--rounds", type=int, default=3, help="processes of each checkout (3)")
    parser.add_argument("--blocks", type=int, default=25, help="blocks of 2,000 requests of each API per process (25)")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if unknown := set(arguments.case) - set(CASES):
        parser.error(f"no case {', '.join(sorted(unknown))}")
    if arguments.worker:
        settings = SETTINGS[arguments.settings]
        print(json.dumps(asyncio.run(measure(arguments.case or list(USUAL_CASES), arguments.blocks, settings))))
    else:
        compare(arguments)
    return 0


if __name__ == "__main__":
    sys.exit(main())
