"""From records of topics to records of sinks and back: converters, then transforms (or the other way round)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from odradek.client.model import ConsumerRecord
from odradek.connect.connector_settings import subset
from odradek.connect.converters import Converter, converter_of
from odradek.connect.model import SinkRecord, SourceRecord
from odradek.connect.transforms import Transform


class Encoded(NamedTuple):
    """A source's record as it goes into a topic."""

    topic: str
    key: bytes | None
    value: bytes | None


class Conversion:
    """The converters and transforms of one connector."""

    def __init__(self, key: Converter, value: Converter, transforms: tuple[Transform, ...] = ()) -> None:
        self._key = key
        self._value = value
        self._transforms = transforms

    @classmethod
    def of(
        cls, values: Mapping[str, Any], config: Mapping[str, str], transforms: tuple[Transform, ...] = ()
    ) -> Conversion:
        """That of a configuration. Raises ValueError."""
        return cls(
            converter_of(values["key.converter"], subset(config, "key.converter."), is_key=True),
            converter_of(values["value.converter"], subset(config, "value.converter.")),
            transforms,
        )

    def decode(self, record: ConsumerRecord[Any, Any]) -> SinkRecord | None:
        """A record of a topic for a sink; None if a transform drops it. Raises ValueError, SchemaMissing."""
        raw_key, raw_value = record.key, record.value
        made = SinkRecord(
            record.topic_partition,
            record.offset,
            record.timestamp,
            self._key.decode(raw_key),
            self._value.decode(raw_value),
            record.headers,
            raw_key,
            raw_value,
            record.topic,
        )
        for transform in self._transforms:
            changed = transform(made.topic, made.key, made.value, made.timestamp)
            if changed is None:
                return None
            made = made._replace(topic=changed.topic, key=changed.key, value=changed.value)
        return made

    def encode(self, record: SourceRecord) -> Encoded | None:
        """A source's record for a topic; None if a transform drops it. Raises ValueError, SchemaMissing."""
        topic, key, value = record.topic, record.key, record.value
        for transform in self._transforms:
            changed = transform(topic, key, value, -1 if record.timestamp is None else record.timestamp)
            if changed is None:
                return None
            topic, key, value = changed
        return Encoded(topic, self._key.encode(topic, key), self._value.encode(topic, value))
