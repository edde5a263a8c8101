"""One fresh environment for all tests of a session, and a person who works in it for each test."""

import os
from pathlib import Path

import pytest

from tests.newcomer.environments import Newcomer, shared_environment


@pytest.fixture(scope="session")
def fresh_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment with Odradek's wheel; the workers of a session share it."""
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    return shared_environment(root / "newcomer")


@pytest.fixture
def newcomer(fresh_programs: Path, tmp_path: Path) -> Newcomer:
    return Newcomer(fresh_programs, tmp_path)
