"""The batches of `./dev bench examination` are what their names say."""

import pytest

from bench import examination
from odradek.records.batch import check_batch
from odradek.records.record import decode_records


@pytest.mark.parametrize("name", examination.SHAPES)
def test_batch_has_the_records_that_its_name_says(name: str) -> None:
    count, key, value = examination.SHAPES[name]
    view = examination.batch(examination.SHAPES[name])
    records = decode_records(view, check_batch(view))
    assert len(records) == count
    assert {key[0], key[1]} >= {
        min(len(each.key or b"") for each in records),
        max(len(each.key or b"") for each in records),
    }
    assert all(value[0] <= len(each.value or b"") <= value[1] for each in records)


def test_every_batch_is_in_the_table(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "SHAPES", {"few": (10, (1, 2), (3, 4))})
    examination.main(["--runs", "1"])
    assert "few" in capsys.readouterr().out
