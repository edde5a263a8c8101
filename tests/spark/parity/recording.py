"""What the official connector made of some cheap cases, kept in a file, so that ours is compared without its Java.

`ODRADEK_RECORD=1 ./dev test -m long -k recorded_outcomes` writes the file again, from Apache Kafka.
"""

import json
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tests.spark.parity.cases import CASES, Case
from tests.spark.parity.data import Filler
from tests.spark.parity.outcomes import Outcome

FILE: Final = Path(__file__).with_name("recorded.json")
DATASETS: Final = ("headers", "nulls", "small", "other", "times", "transactions", "deleted")
"""The topics of the recorded cases."""
_NAMES: Final = (
    "headers",
    "tombstones and empty keys and values",
    "a pattern",
    "by partition",
    "no match, error",
    "within an aborted transaction",
    "start and end at deleted records, lenient",
    "start after end",
    "startingOffsets of some partitions",
)
RECORDED: Final[list[Case]] = [each for each in CASES if each.name in _NAMES]
"""The cases that the file has."""


def plain(outcome: Outcome, filler: Filler) -> Any:
    """An outcome as JSON has it, with the short names of topics."""
    if outcome.error:
        return {"error": outcome.error}
    assert outcome.rows is not None
    columns = outcome.rows.to_pydict()
    columns["topic"] = [each.removeprefix(filler.name("")) for each in columns["topic"]]
    content = {"schema": outcome.schema, "in_order": outcome.in_order, "tasks": outcome.tasks, "rows": columns}
    return json.loads(json.dumps(content, default=_text))


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    assert isinstance(value, bytes)
    return value.hex()


def load() -> Any:
    """The recorded outcomes by the names of the cases."""
    return json.loads(FILE.read_text())


def save(outcomes: dict[str, Any]) -> None:
    """Write the file."""
    lines = [f"{json.dumps(name)}: {json.dumps(each, sort_keys=True)}" for name, each in sorted(outcomes.items())]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
