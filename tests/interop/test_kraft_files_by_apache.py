"""Apache's DumpLogSegments reads the golden files of KRaft as the committed outputs say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from odradek.cli.main import main
from odradek.kraft.quorum_state import decode_quorum_state, encode_quorum_state
from odradek.log.directories.checkpoint_formats import parse_meta_properties
from tests.interop.conftest import KAFKA
from tests.unit.kraft.golden_files import CHECKPOINT, LOG

pytestmark = pytest.mark.long


@pytest.mark.parametrize("path", [LOG, CHECKPOINT], ids=["log", "checkpoint"])
def test_golden_file_is_read_by_apaches_tool(path: Path, java_tools: Any) -> None:
    text = java_tools.run("dump-log", "--cluster-metadata-decoder", "--files", str(path))
    assert text.split("\n")[1:] == path.with_suffix(".txt").read_text("utf-8").split("\n")


@pytest.fixture(scope="module")
def apache_folder(java_tools: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The metadata folder of an Apache Kafka that has run and stopped."""
    place = tmp_path_factory.mktemp("kraft")
    command = [sys.executable, str(KAFKA), "run", "--quick", "--port", "0", "--for", "600", "--dir", str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        try:
            assert ready[:1] == ["ready"], f"Apache Kafka did not start, see {place}"
            create = ("--create", "--topic", "orders", "--partitions", "3", "--config", "retention.ms=100000")
            java_tools.run("topics", "--bootstrap-server", ready[1], *create)
        finally:
            process.terminate()
    (found,) = place.rglob("__cluster_metadata-0")
    return found


def test_metadata_log_of_apache_is_shown_as_its_tool_does(
    apache_folder: Path, java_tools: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [*apache_folder.glob("*.log"), *apache_folder.parent.glob("*.checkpoint")]
    assert len(files) > 1
    for path in files:
        theirs = java_tools.run("dump-log", "--cluster-metadata-decoder", "--files", str(path))
        assert main(["dump-log", "--cluster-metadata-decoder", "--files", str(path)]) == 0
        assert capsys.readouterr().out.split("\n")[1:] == theirs.split("\n")[1:]
        assert not re.search("Error at", theirs)


def test_quorum_state_and_meta_properties_of_apache_are_read(apache_folder: Path) -> None:
    data = (apache_folder / "quorum-state").read_bytes()
    assert encode_quorum_state(*decode_quorum_state(data)) == data
    meta = parse_meta_properties((apache_folder.parent / "meta.properties").read_bytes())
    assert (meta.version, meta.directory_id is not None, meta.cluster_id is not None) == (1, True, True)
