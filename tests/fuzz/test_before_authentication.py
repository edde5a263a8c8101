"""Random and mutated frames of peers that have proven nothing: a short run of `before_authentication`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.fuzz.before_authentication import run


@pytest.mark.parametrize("seed", [1, 2])
def test_frames_before_authentication_harm_nobody(seed: int, tmp_path: Path) -> None:
    found = asyncio.run(run(5000, seed, tmp_path / "data"))
    assert found.answered > 100
    assert found.closed > 100
    assert found.answered + found.closed + found.waiting == found.frames
