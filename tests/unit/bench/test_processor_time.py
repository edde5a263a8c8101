"""Processor time of processes, and the kernel's part of it."""

from __future__ import annotations

import os
import time

from bench.servers import cpu_seconds, kernel_seconds


def test_kernel_time_is_a_part_of_processor_time() -> None:
    before, of_kernel = cpu_seconds(os.getpid()), kernel_seconds(os.getpid())
    until = time.process_time() + 0.2
    while time.process_time() < until:
        sum(range(10_000))
    spent, kernel = cpu_seconds(os.getpid()) - before, kernel_seconds(os.getpid()) - of_kernel
    assert 0 <= kernel < spent
