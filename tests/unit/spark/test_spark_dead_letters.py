from typing import Any

import pyarrow as pa

from odradek.spark.dead_letters import _Attempt

RESULT = pa.struct([("user", pa.string()), ("amount", pa.int32())])
ERROR = pa.struct([("class", pa.string()), ("message", pa.string()), ("stack", pa.string())])


def run(function: Any, values: list[bytes | None]) -> list[dict[str, Any]]:
    rows = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.binary())})
    (made,) = _Attempt(function, RESULT, ERROR)(iter([rows]))
    assert made.schema.types == [pa.binary(), RESULT, ERROR]
    return made.to_pylist()


def test_a_row_has_a_result_or_an_error_or_is_left_out() -> None:
    def parse(row: dict[str, Any]) -> dict[str, Any] | None:
        if row["value"] is None:
            return None
        user, amount = row["value"].split(b",")
        return {"user": user.decode(), "amount": int(amount), "more": 1}

    good, bad = run(parse, [b"ann,3", None, b"ann"])
    assert good == {"value": b"ann,3", "result": {"user": "ann", "amount": 3}, "error": None}
    assert bad["result"] is None
    assert bad["error"]["class"] == "ValueError"
    assert "not enough values to unpack" in bad["error"]["message"]
    assert "in parse" in bad["error"]["stack"]


def test_a_result_of_another_type_is_an_error_of_its_row_only() -> None:
    def parse(row: dict[str, Any]) -> dict[str, Any]:
        return {"user": "u", "amount": "many" if row["value"] == b"1" else 2**40 if row["value"] == b"2" else 3}

    rows = run(parse, [b"0", b"1", b"2"])
    assert [row["error"] and row["error"]["class"] for row in rows] == [
        None,
        "pyarrow.lib.ArrowInvalid",
        "pyarrow.lib.ArrowInvalid",
    ]
    assert rows[0]["result"] == {"user": "u", "amount": 3}


def test_a_missing_field_is_an_error() -> None:
    (row,) = run(lambda row: {"user": "u"}, [b"x"])
    assert (row["error"]["class"], row["error"]["message"]) == ("KeyError", "'amount'")
