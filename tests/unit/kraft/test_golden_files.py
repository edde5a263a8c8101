"""A metadata log and a checkpoint with every record: both tools show the same, and decoding loses nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.cli.main import main
from odradek.kraft.checkpoints import parse_file_name, read_checkpoint
from odradek.kraft.metadata_log import ControlEntry, MetadataEntry, read_entries
from odradek.kraft.metadata_records import decode_metadata_record, encode_metadata_record
from tests.unit.kraft.golden_files import CHECKPOINT, CONTROLS, LOG, TIMESTAMP_MS, every_record, write


@pytest.mark.parametrize("path", [LOG, CHECKPOINT], ids=["log", "checkpoint"])
def test_dump_log_prints_what_apaches_tool_prints(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["dump-log", "--cluster-metadata-decoder", "--files", str(path)]) == 0
    assert capsys.readouterr().out.split("\n")[1:] == path.with_suffix(".txt").read_text("utf-8").split("\n")


def test_writer_makes_the_golden_files(tmp_path: Path) -> None:
    write(tmp_path)
    for path in (LOG, CHECKPOINT):
        assert (tmp_path / path.name).read_bytes() == path.read_bytes()


def test_golden_log_is_read_as_the_records_that_were_written() -> None:
    entries = list(read_entries(LOG.read_bytes(), whole=True))
    assert [each.message for each in entries if isinstance(each, ControlEntry)] == CONTROLS
    values = [each.value for each in entries if isinstance(each, MetadataEntry)]
    records = [decode_metadata_record(value) for value in values]
    assert records == every_record()
    assert [encode_metadata_record(*each) for each in records] == values
    assert [each.offset for each in entries] == list(range(len(entries)))
    assert {each.leader_epoch for each in entries} == {1, 2}


def test_golden_checkpoint_is_read_as_it_was_written() -> None:
    found = read_checkpoint(CHECKPOINT.read_bytes())
    assert found.last_timestamp_ms == TIMESTAMP_MS - 5
    assert found.controls == CONTROLS[1:]
    assert [decode_metadata_record(each.value) for each in found.entries] == every_record()[:7]
    known = parse_file_name(CHECKPOINT.name)
    assert known is not None
    assert (known.end_offset, known.epoch) == (42, 3)
