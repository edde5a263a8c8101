"""What keeps Spark's Python processes quick, which it uses again for task after task.

After every task Spark lets Python look for garbage, which is a walk over all objects: 40 to 60 ms with the modules that
reading and writing need, in four processes per micro-batch. Modules stay, so they need not be walked.

The columns of a task take megabytes each, and glibc gives such memory back to the system as soon as it is free. The
next column then begins with one page fault for every 4 KB: a third of the processor time of writing.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import sys
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""Parameters of glibc's mallopt(3)."""
_KEPT_BYTES: Final = 64 * 1024 * 1024
_COLUMN_BYTES: Final = 32 * 1024 * 1024
"""The largest value that glibc takes for M_MMAP_THRESHOLD on 64 bits."""
_OTHERS: Final = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")


class _Frozen:
    modules = 0


class _Memory:
    kept_by = 0


def keep_memory() -> None:
    """At the beginning of a task: let this process use the memory of large columns again instead of returning it.

    It keeps up to 64 MB more than it needs. Without effect where the allocator is not glibc's, or was configured by the
    environment.
    """
    if _Memory.kept_by == os.getpid():
        return
    _Memory.kept_by = os.getpid()
    if any(name in os.environ for name in _OTHERS):
        return
    with contextlib.suppress(AttributeError, OSError):  # another C library, or none that can be asked
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(_MMAP_THRESHOLD, _COLUMN_BYTES)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def freeze_modules(*, at_leisure: bool) -> None:
    """At the end of a task: leave what is loaded out of later collections.

    Done again only when more modules have been loaded. Garbage of this moment is collected before: all of it where
    there is time (`at_leisure`), else only what is young; the rest would stay.
    """
    if len(sys.modules) == _Frozen.modules:
        return
    gc.collect(2 if at_leisure else 1)
    gc.freeze()
    _Frozen.modules = len(sys.modules)
