"""Freed memory is kept for the next buffers: fewer of its pages cost a fault."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
from odradek.ports.memory import keep_freed_memory

if {keep}:
    keep_freed_memory(1 << 22)
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(200):
    buffers = [b"x" * 100_000 for _ in range(10)]
    del buffers
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(*, keep: bool) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(keep=keep)], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries return memory by other rules")
def test_buffers_that_come_and_go_cost_no_faults_once_they_were_used() -> None:
    pages = 10 * 100_000 // 4096
    assert faults(keep=False) > 5 * pages
    assert faults(keep=True) < 3 * pages
