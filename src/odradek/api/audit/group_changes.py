"""Changes of groups and their offsets from outside of the group, from requests and their answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from odradek.api.audit.answered import Answered
from odradek.api.audit.trail import Change
from odradek.groups.events import FetchedOffset

_GROUP: Final = "GROUP"
Offsets = Sequence[tuple[str, Sequence[FetchedOffset]]]
"""By topic."""


def offsets_by_partition(fetched: Offsets | None) -> dict[str, dict[str, int | None]]:
    """Committed offsets by topic and partition; None where there is none."""
    return {
        topic: {str(each.partition): each.offset if each.offset >= 0 else None for each in partitions}
        for topic, partitions in fetched or ()
    }


def deleted_groups(served: Answered) -> Iterator[Change]:
    """Of DeleteGroups; `known` are the offsets of each group."""
    for each in served.answer.results:
        before = {"offsets": offsets_by_partition(served.known.get(each.group_id))}
        yield Change(_GROUP, each.group_id, before, before if each.error_code else None, each.error_code)


def deleted_offsets(served: Answered) -> Iterator[Change]:
    """Of OffsetDelete: a change for each topic; `known` are the offsets of the group."""
    group = served.request.group_id
    known = offsets_by_partition(served.known.get(group))
    if served.failure:
        for topic in served.request.topics:
            yield Change(_GROUP, group, None, None, served.failure, topic.name)
        return
    for topic in served.answer.topics:
        codes = {str(each.partition_index): each.error_code for each in topic.partitions}
        yield _of_topic(group, topic.name, known, dict.fromkeys(codes), codes)


def committed_offsets(
    group: str, known: Offsets | None, wanted: Mapping[str, Mapping[str, int]], codes: Mapping[str, Mapping[str, int]]
) -> Iterator[Change]:
    """Of OffsetCommit by a client outside of the group: a change for each topic."""
    before = offsets_by_partition(known)
    for topic, offsets in wanted.items():
        yield _of_topic(group, topic, before, offsets, codes[topic])


def _of_topic(
    group: str,
    topic: str,
    known: Mapping[str, Mapping[str, int | None]],
    wanted: Mapping[str, Any],
    codes: Mapping[str, int],
) -> Change:
    """The partitions that were changed; if none was, the error of the first."""
    was = known.get(topic, {})
    changed = [index for index, code in codes.items() if not code]
    before = {index: was.get(index) for index in codes}
    after = before | {index: wanted[index] for index in changed}
    code = 0 if changed else next(iter(codes.values()), 0)
    return Change(_GROUP, group, {"offsets": before}, {"offsets": after}, code, topic)
