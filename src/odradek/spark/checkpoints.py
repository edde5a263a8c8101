"""What Spark notes of a streaming query in its checkpoint folder: whose it is, where each batch's sources end."""

from __future__ import annotations

import json

from odradek.spark.checkpoint_files import CheckpointError, CheckpointFiles
from odradek.spark.offset_log import OffsetLogError, SourceEnd, parse_entry
from odradek.spark.offsets import Offsets, from_json


def query_id(files: CheckpointFiles) -> str:
    """What makes the query the same over restarts; a new checkpoint makes a new one. Raises CheckpointError."""
    text = files.read("metadata")
    try:
        return str(json.loads(text)["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"the checkpoint's file metadata names no query: {text[:100]!r}") from error


def source_ends(files: CheckpointFiles, batch_id: int) -> list[SourceEnd]:
    """Where the batch's Kafka sources end, in either version of Spark's offset log. Raises CheckpointError."""
    name = f"offsets/{batch_id}"
    try:
        return parse_entry(files.read(name))
    except OffsetLogError as error:
        raise CheckpointError(f"Spark's entry {name} cannot be read: {error}") from error


def initial_offsets(files: CheckpointFiles, source: str) -> Offsets | None:
    """Where a source of Spark's own connector began, which keeps that in the checkpoint; None for other sources.

    The file is a zero byte and the line `v1`, then the offsets (KafkaSourceInitialOffsetWriter).
    """
    try:
        version, _, text = files.read(f"sources/{source}/0").lstrip("\0").partition("\n")
        return from_json(json.loads(text)) if version == "v1" else None
    except (CheckpointError, ValueError, AttributeError):
        return None
