"""Writing records into tables without a broker."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from odradek.tables.process import store_of
from odradek.tables.specification import TableSpec

TOPIC_ID = b"\x11" * 16
AT_MS = 1_767_225_600_000
"""2026-01-01 in UTC."""


class Writer:
    """A table, with records made of JSON values."""

    def __init__(self, spec: TableSpec, *, topic_id: bytes = TOPIC_ID) -> None:
        self.spec = spec
        self.store = store_of(spec)
        self.positions = dict(self.store.open([0], topic_id))
        if not self.positions:
            self.store.begin({0: 0})
            self.positions = {0: 0}

    def write(self, *records: Any) -> None:
        """Write records: values, or (key, value); bytes as they are."""
        first = self.positions[0]
        pairs = [each if isinstance(each, tuple) else ("k", each) for each in records]
        values = [each if isinstance(each, bytes | None) else json.dumps(each).encode() for _, each in pairs]
        count = len(pairs)
        table = pa.table({
            "topic": ["orders"] * count,
            "partition": [0] * count,
            "offset": range(first, first + count),
            "timestamp": pa.array([AT_MS] * count, pa.timestamp("ms", "UTC")),
            "key": pa.array([key if isinstance(key, bytes) else key.encode() for key, _ in pairs], pa.binary()),
            "value": pa.array(values, pa.binary()),
        })  # fmt: skip
        self.store.write(list(self.spec.decoder.decode(table)), {0: first + count})
        self.positions = {0: first + count}
