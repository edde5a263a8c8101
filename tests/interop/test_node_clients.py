"""kafkajs, which speaks the protocol itself and mostly in old versions, as a program in `node/`."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SOURCES = Path(__file__).parent / "node"
LIMIT_SECONDS = 120


@pytest.fixture(scope="session")
def kafkajs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the program and its modules."""
    if not (shutil.which("node") and shutil.which("npm")):
        pytest.skip("kafkajs needs Node and npm, and there are none")
    folder = tmp_path_factory.mktemp("node")
    for name in ("package.json", "package-lock.json", "kafkajs.js"):
        shutil.copy(SOURCES / name, folder / name)
    command = ["npm", "ci", "--no-audit", "--no-fund", "--prefer-offline"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"kafkajs could not be fetched: {done.stderr.strip()}")
    return folder / "kafkajs.js"


@pytest.mark.parametrize("case", ["basic", "transactions", "admin", pytest.param("groups", marks=pytest.mark.long)])
def test_kafkajs(kafkajs: Path, bootstrap: str, case: str) -> None:
    done = subprocess.run(
        ["node", str(kafkajs), bootstrap, case],
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        env={**os.environ, "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.strip() == f"ok {case}"
