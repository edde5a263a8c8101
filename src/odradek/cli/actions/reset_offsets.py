"""`odradek groups --reset-offsets`: set the offsets where a group resumes (Apache's OffsetsUtils)."""

from __future__ import annotations

import argparse
import csv
import io
import re
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.group_selection import chosen_groups, confirmed_groups
from odradek.cli.arguments.names import topic_partitions
from odradek.cli.arguments.partition_selection import partitions_of
from odradek.cli.records.times import duration_ms, timestamp_ms
from odradek.cli.session import run_admin
from odradek.cli.terminal.output import Column, show
from odradek.client.admin import Admin, GroupState, raise_first
from odradek.client.reports.offset_resets import Offsets, ResetError, plan_reset
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import KafkaError

_OFFSET: Final = re.compile(r"-?\d+")
COLUMNS: Final = (
    Column("GROUP", "group", 15),
    Column("TOPIC", "topic", 15),
    Column("PARTITION", "partition", 10),
    Column("CURRENT-OFFSET", "current_offset", 15, wide=True),
    Column("NEW-OFFSET", "new_offset"),
)


def reset(arguments: argparse.Namespace, scenario: str) -> int:
    """Shows, and with --execute sets, the new offsets; 1 if a group could not be reset."""
    if arguments.dry_run and arguments.execute:
        raise UsageError("--dry-run and --execute exclude each other")
    if scenario != "from-file" and not arguments.topic and not arguments.all_topics:
        raise UsageError("--reset-offsets needs --topic or --all-topics")
    if scenario == "from-file" and (arguments.topic or arguments.all_topics):
        raise UsageError("--from-file goes neither with --topic nor with --all-topics: it names the partitions")
    if arguments.topic and arguments.all_topics:
        raise UsageError("--topic and --all-topics exclude each other")
    topics = topic_partitions(arguments.topic)
    from_file = read_csv(arguments.from_file, arguments.group) if scenario == "from-file" else {}
    target = _target(arguments, scenario)
    confirmed = confirmed_groups(arguments, "reset offsets of") if arguments.execute else None

    async def work(admin: Admin) -> tuple[list[dict[str, Any]], list[str]]:
        rows: list[dict[str, Any]] = []
        failures: list[str] = []
        for group in await chosen_groups(admin, arguments) if confirmed is None else confirmed:
            try:
                await refuse_active(admin, group)
                current = {key: at.offset for key, at in (await admin.groups.offsets(group)).items()}
                partitions = list(from_file.get(group, {}))
                if scenario == "from-file" and not partitions and not arguments.all_groups:
                    raise CommandError(f"{arguments.from_file} has no offsets of it")
                if scenario != "from-file":
                    partitions = list(current) if arguments.all_topics else await partitions_of(admin, topics)
                planned = await plan_reset(
                    admin, scenario, target, partitions, current, from_file.get(group, {}), _warn
                )
                if arguments.execute and planned:
                    raise_first(await admin.groups.alter_offsets(group, planned))
            except (CommandError, ResetError, KafkaError) as error:
                failures.append(f"group {group}: {error}")
                continue
            rows += [
                {
                    "group": group,
                    "topic": key.topic,
                    "partition": key.partition,
                    "current_offset": current.get(key),
                    "new_offset": offset,
                }
                for key, offset in sorted(planned.items())
            ]
        return rows, failures

    rows, failures = run_admin(arguments, work)
    if failures and not rows:
        raise CommandError("; ".join(failures))
    if not arguments.dry_run and not arguments.execute and not arguments.export:
        print("Dry run: --execute sets these offsets.", file=sys.stderr)
    if arguments.export:
        print(to_csv(rows, with_group=len({row["group"] for row in rows}) > 1), end="")
    else:
        show(rows, COLUMNS, arguments.output)
    for failure in failures:
        print(f"odradek groups: {failure}", file=sys.stderr)
    return 1 if failures else 0


def _target(arguments: argparse.Namespace, scenario: str) -> int:
    """The number behind a scenario: an offset, a shift, or a time in ms. Raises UsageError."""
    now_ms = time.time_ns() // 1_000_000
    if scenario == "to-offset":
        return int(arguments.to_offset)
    if scenario == "shift-by":
        return int(arguments.shift_by)
    if scenario == "to-datetime":
        return timestamp_ms(arguments.to_datetime, now_ms)
    if scenario == "by-duration":
        return now_ms - duration_ms(arguments.by_duration)
    return 0


async def refuse_active(admin: Admin, group: str) -> None:
    """Raises CommandError for a group with members; one that does not exist yet may be given offsets."""
    found = (await admin.groups.describe([group]))[group]
    if not isinstance(found, KafkaError) and found.state not in (GroupState.EMPTY, GroupState.DEAD):
        raise CommandError(f"offsets can be reset only while a group is inactive; this one is {found.state}")


def _warn(text: str) -> None:
    print(text, file=sys.stderr)


# --- CSV as of Apache's --export ---


def to_csv(rows: list[dict[str, Any]], *, with_group: bool) -> str:
    """`topic,partition,offset`, with the group in front if there are several."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for row in rows:
        line = [row["topic"], row["partition"], row["new_offset"]]
        writer.writerow([row["group"], *line] if with_group else line)
    return text.getvalue()


def read_csv(path: str, groups: list[str]) -> Mapping[str, Offsets]:
    """What `to_csv` writes; lines without a group are for the only one that is named. Raises UsageError."""
    found: dict[str, Offsets] = {}
    try:
        with open(path, newline="", encoding="utf-8") as file:
            lines = list(csv.reader(file))
    except OSError as error:
        raise UsageError(f"--from-file {path}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"--from-file {path}: {error}") from error
    for number, line in enumerate(lines, 1):
        if not any(each.strip() for each in line):
            continue
        fields = [each.strip() for each in line]
        if len(fields) == 3 and len(groups) == 1:
            fields.insert(0, groups[0])
        if len(fields) != 4 or not fields[2].isdecimal() or _OFFSET.fullmatch(fields[3]) is None:
            form = "topic,partition,offset" if len(groups) == 1 else "group,topic,partition,offset"
            raise UsageError(f"--from-file {path}: line {number}: {form} expected")
        group, topic, partition, offset = fields
        place = TopicPartition(topic, int(partition))
        if place in found.setdefault(group, {}):
            raise UsageError(f"--from-file {path}: line {number}: {place} of group {group} occurs twice")
        found[group][place] = int(offset)
    return found
