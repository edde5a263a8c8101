"""What keeps Spark's Python processes quick, which it uses again for task after task.

After every task Spark lets Python look for garbage, which is a walk over all objects: 40 to 60 ms with the modules that
reading and writing need, in four processes per micro-batch. Modules stay, so they need not be walked.
"""

from __future__ import annotations

import gc
import sys


class _Frozen:
    modules = 0


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
