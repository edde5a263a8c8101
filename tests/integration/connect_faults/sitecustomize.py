"""On the PYTHONPATH of a connectors' worker under test: kills the process at a point of its code.

ODRADEK_TEST_KILL is `MODULE:CLASS.METHOD:N:WHEN`: the N-th call of the method kills the process with SIGKILL, `before`
it begins or `after` it has returned.
"""

import functools
import importlib
import inspect
import os
import signal

_POINT = os.environ.get("ODRADEK_TEST_KILL", "")


def _kill():
    os.kill(os.getpid(), signal.SIGKILL)


def _plant(module, owner, method, count, when):
    kind = getattr(importlib.import_module(module), owner)
    original = getattr(kind, method)
    calls = 0

    def is_due():
        nonlocal calls
        calls += 1
        return calls == count

    @functools.wraps(original)
    def call(*arguments, **options):
        due = is_due()
        if due and when == "before":
            _kill()
        result = original(*arguments, **options)
        if due:
            _kill()
        return result

    @functools.wraps(original)
    async def call_and_wait(*arguments, **options):
        due = is_due()
        if due and when == "before":
            _kill()
        result = await original(*arguments, **options)
        if due:
            _kill()
        return result

    setattr(kind, method, call_and_wait if inspect.iscoroutinefunction(original) else call)


if _POINT:
    _module, _path, _count, _when = _POINT.split(":")
    _owner, _method = _path.split(".")
    _plant(_module, _owner, _method, int(_count), _when)
