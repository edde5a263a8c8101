"""What a start does without is loaded soon after it."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import asyncio
from odradek.api.requests import registry
from odradek.api.requests.declarations import DECLARATIONS
from odradek.broker import lifecycle

from odradek.api.requests.declarations import DECLARATIONS
keys = DECLARATIONS.keys()
assert registry._endpoints.keys() < keys, "everything was loaded at the start"
asyncio.run(lifecycle.Broker.load_the_rest(None))
assert registry._endpoints.keys() == keys, keys - registry._endpoints.keys()
"""


def test_every_api_is_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
