"""`odradek reassign execute`, `verify` and `cancel`."""

from __future__ import annotations

import argparse
import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.actions.reassignment_plan import Plan, begin_moves, check, current_of, plan_text, read_plan
from odradek.cli.arguments.errors import CommandError
from odradek.cli.arguments.names import topic_partitions
from odradek.cli.session import run_admin
from odradek.cli.terminal.output import DOCUMENTS, Column, show, show_document
from odradek.client.reports.reassignment import Move, MoveState, is_in_directory, state_of
from odradek.records.topic_partition import PartitionKey, TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.client.admin import Admin

COLUMNS: Final = (
    Column("TOPIC", "topic", 20),
    Column("PARTITION", "partition"),
    Column("STATE", "state", 11),
    Column("REPLICAS", "replicas"),
    Column("TARGET", "target"),
)
_LOOK_SECONDS: Final = 0.2
_DIRECTORY_TRIES: Final = 50


def execute(arguments: argparse.Namespace, plan: Plan) -> int:
    """Start the reassignments of a plan, throttled if that is wanted; with --wait complete them."""
    quiet = arguments.output in DOCUMENTS

    async def work(admin: Admin) -> list[Move]:
        current = await current_of(admin, plan.replicas)
        check(plan, current)
        if current.running and not arguments.additional:
            raise CommandError(
                f"{len(current.running)} reassignments run: verify or cancel them first, or use --additional",
                "REASSIGNMENT_IN_PROGRESS",
            )
        before = {place: replicas for place, replicas in current.replicas.items() if replicas is not None}
        moves = [Move(place, before[place], after) for place, after in plan.replicas.items()]
        if not quiet:
            print(f"Current partition replica assignment\n\n{plan_text(before)}\n")
            print("Save it: `execute` of this plan restores the assignment.", flush=True)
        await _throttle(admin, arguments, moves, sorted(current.racks), quiet)
        try:
            remaining = await _place(admin, plan)
            await begin_moves(admin, plan.replicas)
        except CommandError as error:
            if arguments.throttle is None and arguments.replica_alter_log_dirs_throttle is None:
                raise
            raise CommandError(
                f"{error}; the throttles remain: `verify` of this plan removes them", error.code
            ) from error
        await _place_all(admin, remaining)
        if arguments.wait:
            await _wait(admin, plan)
            await _remove_throttles(admin, plan.replicas, sorted(current.racks))
        return moves

    moves = run_admin(arguments, work)
    if quiet:
        rows = [{**each.place._asdict(), "before": list(each.before), "after": list(each.after)} for each in moves]
        show_document(rows, arguments.output)
    else:
        done = "Completed" if arguments.wait else "Successfully started"
        print(f"{done} partition reassignments for {', '.join(str(each.place) for each in moves)}")
    return 0


async def _throttle(
    admin: Admin, arguments: argparse.Namespace, moves: list[Move], brokers: list[int], quiet: bool
) -> None:
    from odradek.client.reports.throttles import throttle

    rate, log_dir_rate = arguments.throttle, arguments.replica_alter_log_dirs_throttle
    await throttle(admin, moves, brokers, rate=rate, log_dir_rate=log_dir_rate)
    if quiet or (rate is None and log_dir_rate is None):
        return
    if not arguments.wait:
        print("Run `verify` until the reassignment is complete: it removes the throttle.")
    if rate is not None:
        print(f"The inter-broker throttle limit was set to {rate} B/s")
    if log_dir_rate is not None:
        print(f"The replica-alter-dir throttle limit was set to {log_dir_rate} B/s")


async def _place(admin: Admin, plan: Plan) -> Plan:
    """Ask brokers for the directories of replicas; what is to be asked again, as the replica does not exist yet.

    A broker without the replica keeps the directory in mind for the time when it is created.
    """
    from odradek.client.admin.log_dirs import TopicPartitionReplica

    targets = {TopicPartitionReplica(*place, broker): path for (place, broker), path in plan.log_dirs.items()}
    if not targets:
        return plan._replace(log_dirs={})
    again: dict[tuple[TopicPartition, int], str] = {}
    for replica, error in (await admin.log_dirs.alter(targets)).items():
        if error is None:
            continue
        if error.code is not ErrorCode.REPLICA_NOT_AVAILABLE:
            raise CommandError(f"{replica.topic_partition} on broker {replica.broker_id}: {error}", error.code.name)
        again[replica.topic_partition, replica.broker_id] = targets[replica]
    return plan._replace(log_dirs=again)


async def _place_all(admin: Admin, remaining: Plan) -> None:
    """Raises CommandError where a replica does not appear on its broker."""
    for _ in range(_DIRECTORY_TRIES):
        if not remaining.log_dirs:
            return
        remaining = await _place(admin, remaining)
        await asyncio.sleep(_LOOK_SECONDS)
    (place, broker), _ = next(iter(remaining.log_dirs.items()))
    raise CommandError(f"{place} has not appeared on broker {broker}: its log directory was not chosen", "NOT_MOVED")


async def _states(admin: Admin, plan: Plan) -> tuple[list[dict[str, Any]], bool]:
    """A row for each partition of the plan, and whether any reassignment runs in the cluster."""
    current = await current_of(admin, plan.replicas)
    rows = []
    for place, target in sorted(plan.replicas.items()):
        replicas, running = current.replicas[place], current.running.get(place)
        rows.append(
            {
                **place._asdict(),
                "state": str(state_of(target, replicas, running)),
                "replicas": None if replicas is None else list(replicas if running is None else running.replicas),
                "target": list(target),
            }
        )
    for row, directory in await _directory_states(admin, plan):
        if directory is not MoveState.COMPLETED:
            rows = [
                {**each, "state": str(directory)}
                if (each["topic"], each["partition"]) == row and each["state"] == MoveState.COMPLETED
                else each
                for each in rows
            ]
    return rows, bool(current.running)


async def _directory_states(admin: Admin, plan: Plan) -> list[tuple[PartitionKey, MoveState]]:
    """Partition and state of each replica whose directory the plan names."""
    from odradek.client.admin.log_dirs import TopicPartitionReplica

    wanted = {TopicPartitionReplica(*place, broker): path for (place, broker), path in plan.log_dirs.items()}
    states = []
    for replica, found in (await admin.log_dirs.describe_replicas(list(wanted))).items():
        if isinstance(found, KafkaError):
            raise found
        state = MoveState.DIFFERENT
        if is_in_directory(found.future, wanted[replica]):
            state = MoveState.IN_PROGRESS
        elif is_in_directory(found.current, wanted[replica]) and found.future is None:
            state = MoveState.COMPLETED
        states.append(((replica.topic, replica.partition), state))
    return states


async def _wait(admin: Admin, plan: Plan) -> None:
    """Raises CommandError when the moves end otherwise than planned."""
    while True:
        rows, _ = await _states(admin, plan)
        other = [each for each in rows if each["state"] in (MoveState.DIFFERENT, MoveState.MISSING)]
        if other:
            raise CommandError(f"the reassignment of {other[0]['topic']}-{other[0]['partition']} was cancelled")
        if all(each["state"] == MoveState.COMPLETED for each in rows):
            return
        await asyncio.sleep(_LOOK_SECONDS)


async def _remove_throttles(admin: Admin, places: Any, brokers: list[int]) -> None:
    from odradek.client.reports.throttles import remove_throttles

    await remove_throttles(admin, sorted({each.topic for each in places}), brokers)


def verify(arguments: argparse.Namespace, plan: Plan) -> int:
    """Print how far a plan is, and remove throttles once no reassignment runs; 0 if it is complete, else 1."""

    async def work(admin: Admin) -> tuple[list[dict[str, Any]], bool]:
        rows, running = await _states(admin, plan)
        ended = not running and all(each["state"] != MoveState.IN_PROGRESS for each in rows)
        if ended and not arguments.preserve_throttles:
            brokers = sorted(each.node_id for each in (await admin.describe_cluster()).brokers)
            await _remove_throttles(admin, plan.replicas, brokers)
        return rows, ended

    rows, ended = run_admin(arguments, work)
    complete = all(each["state"] == MoveState.COMPLETED for each in rows)
    if arguments.output is not None:
        show(rows, COLUMNS, arguments.output)
        return 0 if complete else 1
    print("Status of partition reassignment:")
    for each in rows:
        name = f"{each['topic']}-{each['partition']}"
        if each["state"] == MoveState.DIFFERENT:
            replicas, target = ",".join(map(str, each["replicas"])), ",".join(map(str, each["target"]))
            print(f"There is no active reassignment of partition {name}, but replica set is {replicas} "
                  f"rather than {target}.")  # fmt: skip
        elif each["state"] == MoveState.MISSING:
            print(f"Partition {name} does not exist.")
        else:
            still = "still in progress" if each["state"] == MoveState.IN_PROGRESS else "completed"
            print(f"Reassignment of partition {name} is {still}.")
    if ended and not arguments.preserve_throttles:
        print("\nRemoved the throttles of all brokers and of the topics in the plan.")
    return 0 if complete else 1


def cancel(arguments: argparse.Namespace) -> int:
    """Cancel the reassignments that run, of a plan, of topics or all, and remove their throttles."""
    plan = None if arguments.reassignment_json_file is None else read_plan(arguments.reassignment_json_file)
    named = topic_partitions(arguments.topic)

    def is_meant(place: TopicPartition) -> bool:
        if plan is not None:
            return place in plan.replicas
        numbers = named.get(place.topic, ())
        return arguments.all or numbers is None or place.partition in numbers

    async def work(admin: Admin) -> tuple[list[TopicPartition], dict[TopicPartition, KafkaError]]:
        from odradek.client.reports.moves import request_moves

        running = await admin.replicas.reassignments()
        wanted = [place for place in running if is_meant(place)]
        failed = await request_moves(admin, dict.fromkeys(wanted)) if wanted else {}
        left = await admin.replicas.reassignments()
        if not left and not arguments.preserve_throttles:
            brokers = sorted(each.node_id for each in (await admin.describe_cluster()).brokers)
            await _remove_throttles(admin, [*wanted, *(plan.replicas if plan is not None else ())], brokers)
        return wanted, failed

    wanted, failed = run_admin(arguments, work)
    done = sorted(set(wanted) - failed.keys())
    if arguments.output in DOCUMENTS:
        show_document({"cancelled": [each._asdict() for each in done]}, arguments.output)
    elif done:
        print(f"Successfully cancelled partition reassignments for: {', '.join(map(str, done))}")
    elif not failed:
        print("None of the specified partition moves are active.")
    for place, error in sorted(failed.items()):
        print(f"odradek reassign: cannot cancel the reassignment of {place}: {error}", file=sys.stderr)
    return 1 if failed else 0
