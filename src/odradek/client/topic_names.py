"""Names that a topic may have (Kafka's `Topic.validate`)."""

from __future__ import annotations

import re
from typing import Final

from odradek.wire.errors import ErrorCode, KafkaError

_LONGEST: Final = 249
_LEGAL: Final = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: object) -> str:
    """The name, if a topic can have it. Raises TypeError, KafkaError (INVALID_TOPIC_EXCEPTION)."""
    if not isinstance(name, str):
        raise TypeError(f"topic: expected str, got {type(name).__name__} ({name!r})")
    if name in ("", ".", ".."):
        why = "is not a name"
    elif len(name) > _LONGEST:
        why = f"has {len(name)} characters, more than {_LONGEST}"
    elif _LEGAL.fullmatch(name) is None:
        why = "has characters other than ASCII letters, digits, '.', '_' and '-'"
    else:
        return name
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name!r} {why}")
