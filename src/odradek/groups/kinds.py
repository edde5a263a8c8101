"""The kinds of groups that this broker coordinates. Another kind is another row."""

from __future__ import annotations

from typing import Any, Final

from odradek.groups.classic.kind import CLASSIC_KIND
from odradek.groups.consumer.kind import CONSUMER_KIND
from odradek.groups.group import KindRegistration
from odradek.groups.offsets.records import OFFSET_RECORD_TYPES
from odradek.groups.records import RecordType

KINDS: Final[tuple[KindRegistration, ...]] = (CLASSIC_KIND, CONSUMER_KIND)
"""In the order in which they are created, and in which groups are listed."""

RECORD_TYPES: Final[tuple[RecordType[Any], ...]] = (
    *OFFSET_RECORD_TYPES,
    *(record_type for kind in KINDS for record_type in kind.record_types),
)
"""All that `__consumer_offsets` may contain."""
