"""How many disks, how much bandwidth and how many brokers a workload needs. Pure."""

from __future__ import annotations

import math
from typing import NamedTuple


class Workload(NamedTuple):
    """`bytes_per_second` arrive uncompressed; `compression` is what is left of them (1: nothing is saved)."""

    bytes_per_second: float
    copies: int
    retention_seconds: float
    compression: float
    index_share: float
    disk_headroom: float
    readers: float


class Machine(NamedTuple):
    """`link_use` is how much of a link may be used at all, `link_share` the part of that which new records may take."""

    link_bits_per_second: float
    link_use: float
    link_share: float
    disk_bytes: float


class Plan(NamedTuple):
    """What a workload needs: bytes stored, bits per second, and the brokers that each of them takes."""

    stored_bytes: float
    disk_bytes: float
    ingress_bits_per_second: float
    traffic_in_bits_per_second: float
    traffic_out_bits_per_second: float
    usable_bits_per_second: float
    brokers_for_ingress: int
    brokers_for_copies: int
    brokers_for_disks: int
    brokers: int


def plan(work: Workload, machine: Machine) -> Plan:
    """What the workload takes. Every copy is as much work again as the first, so brokers multiply with copies."""
    arriving = work.bytes_per_second * work.compression
    stored = arriving * work.retention_seconds * work.copies * (1 + work.index_share)
    disks = stored * (1 + work.disk_headroom)
    ingress = arriving * 8
    usable = machine.link_bits_per_second * machine.link_use * machine.link_share
    for_ingress = _ceil(ingress / usable)
    for_disks = _ceil(disks / machine.disk_bytes) if machine.disk_bytes else 0
    for_copies = for_ingress * work.copies
    return Plan(
        stored,
        disks,
        ingress,
        ingress * work.copies,
        ingress * (work.copies - 1 + work.readers),
        usable,
        for_ingress,
        for_copies,
        for_disks,
        max(for_copies, for_disks, work.copies, 1),
    )


def _ceil(value: float) -> int:
    return math.ceil(value - 1e-9)
