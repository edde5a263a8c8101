"""What a failure of a client means for a task."""

from __future__ import annotations

from typing import Final

from odradek.client.errors import AuthenticationFailed, ClientError, ConfigError, ProducerFenced
from odradek.connect.errors import ConnectError, TargetAway
from odradek.wire.errors import KafkaError

_LASTING: Final = (AuthenticationFailed, ConfigError, ProducerFenced)


def failure_of(error: KafkaError | ClientError, who: str) -> ConnectError:
    """TargetAway if the same may succeed later; else that the task has no right, or that another one fenced it."""
    text = f"{who}: {type(error).__name__}: {error}" if isinstance(error, ClientError) else f"{who}: {error}"
    lasts = not error.retriable if isinstance(error, KafkaError) else isinstance(error, _LASTING)
    return ConnectError(text) if lasts else TargetAway(text)
