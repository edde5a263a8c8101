"""`odradek plan`: the disks, the bandwidth and the number of brokers that a workload needs.

Sizes are decimal (1 KB is 1,000 bytes), as disks and networks are sold. What a network carries is counted in bits.
"""

from __future__ import annotations

import argparse
import re
from typing import Final

from odradek.cli.arguments.errors import UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import add_output, from_zero, positive
from odradek.cli.terminal.output import DOCUMENTS, Column, show, show_document
from odradek.client.reports.capacity import Machine, Plan, Workload, plan

_SIZE: Final = re.compile(r"(\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([kKMGTP]?)(?:i?[bB])?")
_UNITS: Final = {"": 1, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_PERIODS: Final = {"s": 1, "second": 1, "m": 60, "minute": 60, "h": 3600, "hour": 3600, "d": 86400, "day": 86400}
_COLUMNS: Final = (Column("WHAT", "what", 28), Column("HOW MUCH", "amount", 14), Column("WHY", "why"))
EXAMPLES: Final = """
# estimate disks, bandwidth and brokers
odradek plan --throughput 50MB/s --copies 3 --retention 7days --disk 4TB
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the figures of the workload and of the machines."""
    parser.add_argument("--records", metavar="N/PERIOD", help="rate of records, such as 1e8/day or 5000/s")
    parser.add_argument(
        "--record-size", metavar="SIZE", default="1KB", help="uncompressed size of a record (default: 1KB)"
    )
    parser.add_argument(
        "--throughput", metavar="SIZE/PERIOD", help="rate of bytes instead of --records, such as 1TB/hour"
    )
    parser.add_argument("--copies", type=positive, metavar="N", default=3, help="replication factor (default: 3)")
    parser.add_argument(
        "--retention", metavar="TIME", default="7days", help="retention time, such as 14days or 36h (default: 7days)"
    )
    parser.add_argument(
        "--compression",
        type=from_zero,
        default=1.0,
        metavar="PART",
        help="compressed size divided by uncompressed size (default: 1)",
    )
    parser.add_argument(
        "--index-share",
        type=from_zero,
        default=0.1,
        metavar="PART",
        help="size of indexes per byte of the log (default: 0.1)",
    )
    parser.add_argument(
        "--headroom", type=from_zero, default=0.0, metavar="PART", help="free space per stored byte (default: 0)"
    )
    parser.add_argument(
        "--readers",
        type=from_zero,
        default=1.0,
        metavar="N",
        help="number of groups that read all records (default: 1)",
    )
    parser.add_argument("--link", metavar="BITS", default="1G", help="network of a broker in bit/s (default: 1G)")
    parser.add_argument(
        "--link-use", type=from_zero, default=0.7, metavar="PART", help="usable part of a link (default: 0.7)"
    )
    parser.add_argument(
        "--link-share", type=from_zero, default=1 / 3, metavar="PART",
        help="part of that for new records; peaks, copies and readers use the rest (default: 1/3)",
    )  # fmt: skip
    parser.add_argument("--disk", metavar="SIZE", help="disk space of one broker")
    add_output(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Print the plan; the exit code."""
    work, machine = _workload(arguments), _machine(arguments)
    try:
        found = plan(work, machine)
    except OverflowError:
        raise UsageError("the workload is too large to compute") from None
    if arguments.output in DOCUMENTS:
        show_document(found._asdict(), arguments.output)
        return 0
    show(_rows(work, machine, found), _COLUMNS, arguments.output)
    return 0


def _rows(work: Workload, machine: Machine, found: Plan) -> list[dict[str, str]]:
    days = work.retention_seconds / 86400
    kept = f"{days:g} days, {work.copies} copies, {work.index_share:.0%} for indexes"
    usable = f"{machine.link_use:.0%} of the link, {machine.link_share:.0%} of that for new records"
    rows = [
        ("records arriving", _bits(found.ingress_bits_per_second), "after compression, of one copy"),
        ("stored", _bytes(found.stored_bytes), kept),
        ("disks", _bytes(found.disk_bytes), f"with {work.disk_headroom:.0%} headroom"),
        ("into brokers", _bits(found.traffic_in_bits_per_second), "producers and followers"),
        ("out of brokers", _bits(found.traffic_out_bits_per_second), f"followers and {work.readers:g} readers"),
        ("a broker takes", _bits(found.usable_bits_per_second), usable),
        ("brokers for one copy", str(found.brokers_for_ingress), "by network"),
        ("brokers for all copies", str(found.brokers_for_copies), f"times {work.copies}"),
    ]
    if machine.disk_bytes:
        rows.append(("brokers for the disks", str(found.brokers_for_disks), f"{_bytes(machine.disk_bytes)} each"))
    rows.append(("brokers", str(found.brokers), "the largest of these, at least one for each copy"))
    return [dict(zip(("what", "amount", "why"), row, strict=True)) for row in rows]


def _workload(arguments: argparse.Namespace) -> Workload:
    if (arguments.records is None) == (arguments.throughput is None):
        raise UsageError("give either --records N/PERIOD or --throughput SIZE/PERIOD")
    if arguments.records is not None:
        rate = _rate(arguments.records, "--records") * _size(arguments.record_size, "--record-size")
    else:
        rate = _rate(arguments.throughput, "--throughput")
    if not rate or not arguments.compression:
        raise UsageError("--records, --record-size, --throughput and --compression must be greater than 0")
    return Workload(
        rate,
        arguments.copies,
        _duration(arguments.retention),
        arguments.compression,
        arguments.index_share,
        arguments.headroom,
        arguments.readers,
    )


def _machine(arguments: argparse.Namespace) -> Machine:
    for name in ("link_use", "link_share"):
        if not 0 < getattr(arguments, name) <= 1:
            raise UsageError(f"--{name.replace('_', '-')} {getattr(arguments, name)}: more than 0, at most 1")
    link = _size(arguments.link, "--link")
    if not link:
        raise UsageError("--link must be greater than 0")
    disk = _size(arguments.disk, "--disk") if arguments.disk is not None else 0
    if not disk and arguments.disk is not None:
        raise UsageError(f"--disk {arguments.disk} must be greater than 0")
    return Machine(link, arguments.link_use, arguments.link_share, disk)


def _size(text: str, option: str) -> float:
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{option} {text}: a number with k, M, G, T or P expected")
    return float(match[1]) * _UNITS[match[2]]


def _rate(text: str, option: str) -> float:
    amount, slash, period = text.partition("/")
    seconds = _PERIODS.get(period.strip())
    if not slash or seconds is None:
        raise UsageError(f"{option} {text}: AMOUNT/second, /minute, /hour or /day expected")
    return _size(amount, option) / seconds


def _duration(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+?)s?", text.strip())
    seconds = _PERIODS.get(match[2]) if match is not None else None
    if match is None or seconds is None:
        raise UsageError(f"--retention {text}: a number of days, hours, minutes or seconds expected")
    return float(match[1]) * seconds


def _bytes(amount: float) -> str:
    return f"{_scaled(amount)}B"


def _bits(amount: float) -> str:
    return f"{_scaled(amount)}b/s"


def _scaled(amount: float) -> str:
    for unit in ("P", "T", "G", "M", "k"):
        if amount >= _UNITS[unit]:
            return f"{amount / _UNITS[unit]:.3g} {unit}"
    return f"{amount:.3g} "
