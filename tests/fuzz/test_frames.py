"""Random and mutated frames of peers: short runs of `./dev fuzz`."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.fuzz.frames import STAGES, run


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("seed", [1, 2])
def test_frames_of_strangers_harm_no_other_client(seed: int, stage: str, tmp_path: Path) -> None:
    found = asyncio.run(run(4000, seed, tmp_path / "data", stage))
    assert found.answered > 50
    assert found.closed > 50
    assert found.answered + found.closed + found.waiting == found.frames
