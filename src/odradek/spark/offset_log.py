"""The entries of Spark's offset log: where each source of a query ends in a micro-batch. Text in, offsets out.

Version 1 has a line for each source in the order of the plan; version 2 (`spark.sql.streaming.offsetLog.formatVersion`,
and named sources) begins each line with the source's name or number and a colon. `-` stands for a source without an
offset. Source of the formats: OffsetSeqLog of Spark 4.3.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from odradek.spark.offsets import Offsets, Origin, from_json, origin_of, to_json

_VERSIONS: Final = ("v1", "v2")
_HEADER_LINES: Final = 2
_VOID: Final = "-"


class OffsetLogError(RuntimeError):
    """The entry is incomplete, of another version, or holds a line that is no offset."""


class SourceEnd(NamedTuple):
    """Where a Kafka source of a query ends in a micro-batch."""

    source: str
    """The source's name, or its number in the plan."""
    cluster: str | None
    """The id of the cluster that it reads; None if the offsets were written by Spark's own connector."""
    offsets: Offsets
    resumed_from: str | None = None
    """The point of a store at which the query began; None if it began elsewhere."""
    topic_ids: Mapping[str, str] = {}
    """The ids of the topics, where the source has noted them."""


def parse_entry(text: str) -> list[SourceEnd]:
    """The Kafka sources of an entry; other sources are left out. Raises OffsetLogError."""
    lines = text.split("\n")
    version = lines[0].strip()
    if version not in _VERSIONS:
        raise OffsetLogError(f"its version is {version!r}, not one of {', '.join(_VERSIONS)}")
    if len(lines) < _HEADER_LINES:
        raise OffsetLogError("it is incomplete")
    found = []
    for number, line in enumerate(lines[_HEADER_LINES:]):
        source, text = str(number), line
        if version == "v2":
            source, separator, text = line.partition(":")
            if not separator:
                raise OffsetLogError(f"line {number + 3} names no source: {line[:100]!r}")
        if text == _VOID:
            continue
        content = _parse_line(text, number + 3)
        if _is_kafka(content, number + 3):
            origin = origin_of(content)
            found.append(SourceEnd(source, origin.cluster, from_json(content), origin.resumed_from, origin.topic_ids))
    return found


def _parse_line(text: str, number: int) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise OffsetLogError(f"line {number} is no offset: {text[:100]!r}") from None


def _is_kafka(content: Any, number: int) -> bool:
    """Whether a line has offsets of Kafka. Raises OffsetLogError for a damaged line of one of our sources.

    Sources of others write what they like, {"stream": {"0": "3"}} for instance. So only the origin, which no other
    source keeps among its offsets, sets a damaged line apart; Spark's own connector keeps none.
    """
    if not isinstance(content, dict):
        return False
    if all(isinstance(each, dict) and _are_offsets(each) for each in content.values()):
        return True
    if origin_of(content) != Origin():
        raise OffsetLogError(f"line {number} names a cluster or topics of Kafka, but has other values than offsets")
    return False


def _are_offsets(partitions: Mapping[str, Any]) -> bool:
    return all(each.isdecimal() and type(offset) is int for each, offset in partitions.items())


def offsets_on(cluster: str | None, ends: Iterable[SourceEnd]) -> Offsets:
    """The offsets of the sources that read one cluster. Sources of an unknown cluster count as of this one.

    Where two of them read the same partition, the smaller offset: both have read up to there.
    """
    found: Offsets = {}
    for each in ends:
        if each.cluster is None or cluster is None or each.cluster == cluster:
            for key, offset in each.offsets.items():
                found[key] = min(offset, found.get(key, offset))
    return found


def to_document(ends: Iterable[SourceEnd]) -> list[dict[str, Any]]:
    """The ends of sources as JSON: [{"source": "0", "cluster": "…", "offsets": {"topic": {"0": 23}}, "topics": {…}}].

    `topics` are ids by name.
    """
    return [
        {
            "source": each.source,
            "cluster": each.cluster,
            "offsets": to_json(each.offsets),
            "topics": dict(each.topic_ids),
        }
        for each in ends
    ]


def from_document(content: Any) -> list[SourceEnd]:
    """What `to_document` made. Earlier releases kept no ids; or one map of topics: a source of an unknown cluster."""
    if isinstance(content, Mapping):
        return [SourceEnd("0", None, from_json(content))] if content else []
    return [
        SourceEnd(each["source"], each["cluster"], from_json(each["offsets"]), topic_ids=each.get("topics", {}))
        for each in content
    ]
