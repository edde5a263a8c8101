"""On the PYTHONPATH of the tests' Spark: lets a test break the transaction protocol at a named point, once.

A test writes `POINT ACTION` into the file that ODRADEK_TEST_FAULTS names. The first process that comes by the point
takes the file away and acts: `raise`, `exit` (this Python process dies) or `kill` (so do Java and the driver).
"""

import os
import signal

_FILE = os.environ.get("ODRADEK_TEST_FAULTS")


def _reached(point):
    try:
        with open(_FILE) as file:
            wanted, action, *pids = file.read().split()
        if wanted != point:
            return
        # Only one process can take it.
        os.rename(_FILE, f"{_FILE}.done")
    except (FileNotFoundError, ValueError):
        return
    if action == "raise":
        raise RuntimeError(f"planted at {point}")
    if action == "kill":
        os.killpg(int(pids[0]), signal.SIGKILL)
    os._exit(9)


def _around(owner, name, before, after):
    original = getattr(owner, name)
    if name in ("begin", "commit") and not isinstance(owner, type):

        def call(*args, **kwargs):
            _reached(before)
            result = original(*args, **kwargs)
            _reached(after)
            return result

    else:

        async def call(*args, **kwargs):
            _reached(before)
            result = await original(*args, **kwargs)
            _reached(after)
            return result

    setattr(owner, name, call)


if _FILE:
    from odradek.client.transactions import TransactionalProducer
    from odradek.spark import transactions

    _around(transactions, "begin", "before-begin", "after-begin")
    _around(transactions, "commit", "before-commit", "after-commit")
    _around(transactions._Sending, "_send_partition", "before-produce", "after-produce")
    _around(TransactionalProducer, "send_offsets", "before-offsets", "after-offsets")
    _around(TransactionalProducer, "commit", "before-end", "after-end")
