"""What Spark notes of a streaming query in its checkpoint folder: whose it is, where each batch's sources end."""

from __future__ import annotations

import json
import re
from pathlib import Path

from odradek.records.topic_partition import TopicPartition

SourceOffsets = dict[TopicPartition, int]
"""The next offset behind a batch, for every partition of the query's sources."""


class CheckpointError(RuntimeError):
    """The checkpoint folder cannot be read from the driver, or is not one."""


def local_path(location: str) -> Path:
    """The folder as this machine's file system has it. Raises CheckpointError where it is somewhere else."""
    path = re.sub(r"^file:/*", "/", location)
    if re.match(r"[a-z][a-z0-9+.-]+://", path):
        raise CheckpointError(f"{location}: only a checkpoint that the driver's file system has can be read")
    return Path(path)


def query_id(location: str) -> str:
    """What makes the query the same over restarts; a new checkpoint makes a new one. Raises CheckpointError."""
    try:
        return str(json.loads((local_path(location) / "metadata").read_text())["id"])
    except (OSError, ValueError, KeyError) as error:
        raise CheckpointError(f"{location} is not the checkpoint of a query that runs: {error}") from error


def source_offsets(location: str, batch_id: int) -> SourceOffsets:
    """Where the batch's Kafka sources end. Raises CheckpointError."""
    try:
        lines = (local_path(location) / "offsets" / str(batch_id)).read_text().splitlines()
    except OSError as error:
        raise CheckpointError(f"Spark's note of batch {batch_id} in {location} cannot be read: {error}") from error
    found: SourceOffsets = {}
    for line in lines[2:]:
        try:
            content = json.loads(line)
        except ValueError:
            continue
        for topic, partitions in content.items() if isinstance(content, dict) else ():
            if isinstance(partitions, dict):
                found.update({TopicPartition(topic, int(p)): offset for p, offset in partitions.items()})
    return found
