"""Options of the source and the sink: names, defaults and refusals of Spark's Kafka integration guide.

Spark hands options over with lower-case names. Whatever starts with `kafka.` goes to the client.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from odradek.client.config import ADMIN_DEFAULTS, CONSUMER_DEFAULTS, PRODUCER_DEFAULTS
from odradek.spark.option_names import SINK_NAMES, SOURCE_NAMES, OptionError, check_names, nearest
from odradek.spark.topic_pattern import PatternError, compile_pattern

MARKER_TOPIC: Final = "odradek-spark-batches"
"""Where exactly-once queries keep the numbers of their committed batches, unless markerTopic says otherwise."""
EARLIEST: Final = -2
LATEST: Final = -1

CHECKPOINTS_VARIABLE: Final = "ODRADEK_CHECKPOINTS"
"""For the sink what spark.sql.streaming.checkpointLocation is for Spark: a folder with one for each named query."""

PartitionOffsets = dict[str, dict[int, int]]
"""Offsets (or timestamps in ms) by topic and partition."""

_SUBSCRIPTIONS: Final = ("assign", "subscribe", "subscribePattern")
_ENDINGS: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_TIME_UNITS_MS: Final = {
    "us": 0.001, "ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000,
}  # fmt: skip

_REFUSED_BY_SOURCE: Final = {
    "auto.offset.reset": "say where to begin with the option startingOffsets",
    "key.deserializer": "keys are always binary; convert them with DataFrame operations",
    "value.deserializer": "values are always binary; convert them with DataFrame operations",
    "enable.auto.commit": "the source keeps its own offsets and commits none",
    "interceptor.classes": "interceptors could break the query and are not supported",
}
_REFUSED_BY_SINK: Final = {
    "key.serializer": "keys are written as the bytes of the column key",
    "value.serializer": "values are written as the bytes of the column value",
    "partitioner.class": "Java classes cannot run here; choose partitions with the column partition",
    "interceptor.classes": "Java classes cannot run here",
    "transactional.id": "use the option transactionalId; the sink makes one from the checkpoint location otherwise",
}
# Settings of Java's clients without a meaning here, which change nothing about what is read or written.
_WITHOUT_EFFECT: Final = frozenset(
    {
        "allow.auto.create.topics", "auto.include.jmx.reporter", "enable.metrics.push",
        "exclude.internal.topics", "max.poll.records", "metadata.max.idle.ms",
        "metric.reporters", "metrics.num.samples", "metrics.recording.level", "metrics.sample.window.ms",
        "partitioner.adaptive.partitioning.enable", "partitioner.availability.timeout.ms",
    }
)  # fmt: skip


def read_flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """A boolean option. Raises OptionError for other values."""
    text = options.get(name.lower())
    if text is None:
        return default
    flag = {"true": True, "false": False}.get(text.strip().lower())
    if flag is None:
        raise OptionError(f"{name}: {text!r} is neither true nor false")
    return flag


class Position(NamedTuple):
    """Where to begin or end. One of: a whole (EARLIEST, LATEST), offsets, a timestamp for all, timestamps.

    `fallback_latest` is what happens with timestamps that no record matches: the latest offset, or an error.
    """

    whole: int | None = None
    offsets: PartitionOffsets | None = None
    timestamp_ms: int | None = None
    timestamps_ms: PartitionOffsets | None = None
    fallback_latest: bool = False


class Subscription(NamedTuple):
    """Exactly one is given."""

    assign: dict[str, list[int]] | None = None
    subscribe: list[str] | None = None
    pattern: str | None = None


class SourceOptions(NamedTuple):
    """Options of a source, with the names and defaults of Spark's Kafka source."""

    client: tuple[tuple[str, str], ...]
    subscription: Subscription
    starting: Position
    ending: Position
    fail_on_data_loss: bool
    include_headers: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    poll_timeout_ms: int
    fetch_offset_retries: int
    fetch_offset_retry_interval_ms: int
    commit_group: str | None

    def __repr__(self) -> str:
        """Without the client's options: they may have passwords, and the text may be in a traceback."""
        return f"{type(self).__name__}({len(self.client)} options of the client)"

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> SourceOptions:
        """Raises OptionError."""
        given = {name.lower(): value for name, value in options.items()}
        check_names(given, SOURCE_NAMES, SINK_NAMES, "source")
        if streaming:
            refused = [name for name in _ENDINGS if name.lower() in given]
            if refused:
                raise OptionError(f"{refused[0]} is not valid in streaming queries")
        starting = _position(given, "starting", LATEST if streaming else EARLIEST)
        ending = _position(given, "ending", LATEST)
        if not streaming:
            _check_batch(starting, ending)
        minimum, maximum = _number(given, "minOffsetsPerTrigger"), _number(given, "maxOffsetsPerTrigger")
        if minimum is not None and maximum is not None and minimum > maximum:
            raise OptionError("minOffsetsPerTrigger is greater than maxOffsetsPerTrigger")
        client = _client_options(given, _REFUSED_BY_SOURCE, dict(CONSUMER_DEFAULTS), "source")
        group, client = _group(given, client)
        commits = read_flag(given, "commitOffsets", default=False)
        if commits and not group:
            raise OptionError("commitOffsets needs kafka.group.id or groupIdPrefix, to have a group to commit to")
        return cls(
            client=client,
            subscription=_subscription(given),
            starting=starting,
            ending=ending,
            fail_on_data_loss=read_flag(given, "failOnDataLoss", default=True),
            include_headers=read_flag(given, "includeHeaders", default=False),
            min_partitions=_number(given, "minPartitions"),
            max_records_per_partition=_number(given, "maxRecordsPerPartition"),
            max_offsets_per_trigger=maximum,
            min_offsets_per_trigger=minimum,
            max_trigger_delay_ms=_duration_ms(given, "maxTriggerDelay", 900_000),
            poll_timeout_ms=_number(given, "kafkaConsumer.pollTimeoutMs", default=120_000) or 0,
            fetch_offset_retries=_number(given, "fetchOffset.numRetries", least=0, default=3) or 0,
            fetch_offset_retry_interval_ms=_number(given, "fetchOffset.retryIntervalMs", least=0, default=10) or 0,
            commit_group=group if commits else None,
        )


class SinkOptions(NamedTuple):
    """Options of a sink, with the names and defaults of Spark's Kafka sink."""

    client: tuple[tuple[str, str], ...]
    topic: str | None
    include_headers: bool
    exactly_once: bool
    transactional_id: str | None
    checkpoint_location: str | None
    query_name: str | None
    source_group: str | None
    marker_topic: str | None
    lease_host: str | None = None
    """Where the lease server of an exactly-once write listens; None: the address that leads to the brokers."""
    lease_port: int = 0
    lease_certificate: str = ""
    lease_authority: str = ""

    def __repr__(self) -> str:
        """Without the client's options: they may have passwords, and the text may be in a traceback."""
        return f"{type(self).__name__}({len(self.client)} options of the client)"

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> SinkOptions:
        """Raises OptionError."""
        given = {name.lower(): value for name, value in options.items()}
        check_names(given, SINK_NAMES, SOURCE_NAMES, "sink")
        guarantee = given.get("deliveryguarantee", "exactly-once").strip().lower()
        if guarantee not in ("exactly-once", "at-least-once"):
            raise OptionError(f"deliveryGuarantee: {guarantee!r} is neither exactly-once nor at-least-once")
        exactly_once = guarantee == "exactly-once"
        transactional_id = given.get("transactionalid")
        checkpoint = given.get("checkpointlocation") or _default_checkpoint(given.get("queryname"))
        if streaming and exactly_once and not (transactional_id or checkpoint):
            raise OptionError(
                "exactly-once needs the option checkpointLocation or transactionalId on the writer, or a queryName "
                f"where {CHECKPOINTS_VARIABLE} names a folder for all checkpoints, to recognise the query after a "
                "restart; deliveryGuarantee=at-least-once does without"
            )
        if given.get("sourcegroup") and not (streaming and exactly_once and checkpoint):
            raise OptionError(
                "sourceGroup needs a streaming query, deliveryGuarantee=exactly-once and the option checkpointLocation "
                "on the writer: the offsets come from Spark's checkpoint"
            )
        certificate, authority = given.get("leasecertificate", ""), given.get("leaseauthority", "")
        if bool(certificate) != bool(authority):
            raise OptionError("leaseCertificate and leaseAuthority are PEM files that belong together: one is missing")
        return cls(
            client=_client_options(given, _REFUSED_BY_SINK, dict(PRODUCER_DEFAULTS), "sink"),
            topic=given.get("topic") or None,
            include_headers=read_flag(given, "includeHeaders", default=False),
            exactly_once=exactly_once,
            transactional_id=transactional_id,
            checkpoint_location=checkpoint,
            query_name=given.get("queryname"),
            source_group=given.get("sourcegroup"),
            marker_topic=given.get("markertopic", MARKER_TOPIC) or None,
            lease_host=given.get("leasehost") or None,
            lease_port=_port(given, "leasePort"),
            lease_certificate=certificate,
            lease_authority=authority,
        )


def _port(given: Mapping[str, str], name: str) -> int:
    found = _number(given, name, least=0, default=0) or 0
    if found > 65535:
        raise OptionError(f"{name}: {found} is no port")
    return found


def _default_checkpoint(query_name: str | None) -> str | None:
    """Where Spark keeps a named query without a checkpointLocation of its own: sinks do not receive that setting."""
    folder = os.environ.get(CHECKPOINTS_VARIABLE)
    return f"{folder}/{query_name}" if folder and query_name else None


def _client_options(
    given: Mapping[str, str], refused: Mapping[str, str], defaults: Mapping[str, Any], side: str
) -> tuple[tuple[str, str], ...]:
    """The kafka.* options as the client's, in the order of their names."""
    found: dict[str, str] = {}
    for name, value in given.items():
        if not name.startswith("kafka."):
            continue
        option = name.removeprefix("kafka.")
        if option in refused:
            raise OptionError(f"{name} is not supported by the {side}: {refused[option]}")
        if option in _WITHOUT_EFFECT:
            continue
        if option.replace(".", "_") not in defaults:
            names = [*refused, *_WITHOUT_EFFECT, *(each.replace("_", ".") for each in defaults)]
            hint = nearest(option, names)
            raise OptionError(
                f"{name} is not a setting of this {side}'s client{f'; did you mean kafka.{hint}?' if hint else ''}"
            )
        found[option.replace(".", "_")] = value
    if not found.get("bootstrap_servers"):
        raise OptionError("the option kafka.bootstrap.servers is missing")
    return tuple(sorted(found.items()))


def _group(
    given: Mapping[str, str], client: tuple[tuple[str, str], ...]
) -> tuple[str | None, tuple[tuple[str, str], ...]]:
    """The group that reading goes by, and client options that say so.

    As with Spark's own source, no consumer joins the group. Its name is in the client ids, by which brokers apply
    quotas and log requests, and commitOffsets commits to it. kafka.group.id comes before groupIdPrefix, which makes
    a group of its own for every query.
    """
    group = given.get("kafka.group.id")
    if group is None and given.get("groupidprefix"):
        group = f"{given['groupidprefix']}-{uuid.uuid4().hex[:16]}"
    settings = dict(client)
    settings.pop("group_id", None)
    if group is not None:
        settings.setdefault("client_id", f"consumer-{group}")
    return group, tuple(sorted(settings.items()))


def admin_options(client: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """Those client options that every client has."""
    return {name: value for name, value in client if name in ADMIN_DEFAULTS}


def _subscription(given: Mapping[str, str]) -> Subscription:
    found = [name for name in _SUBSCRIPTIONS if name.lower() in given]
    if len(found) != 1:
        raise OptionError(f"exactly one of {', '.join(_SUBSCRIPTIONS)} must be given, not {len(found)}")
    text = given[found[0].lower()].strip()
    if found[0] == "subscribe":
        topics = [each.strip() for each in text.split(",") if each.strip()]
        if not topics:
            raise OptionError("subscribe names no topic")
        return Subscription(subscribe=topics)
    if found[0] == "subscribePattern":
        if not text:
            raise OptionError("subscribePattern is empty")
        try:
            compile_pattern(text)
        except PatternError as error:
            raise OptionError(f"subscribePattern: {error}") from None
        return Subscription(pattern=text)
    content = _json_object(text, "assign", '{"topicA":[0,1],"topicB":[2]}')
    if not all(isinstance(e, list) and all(type(p) is int and p >= 0 for p in e) for e in content.values()):
        raise OptionError('assign: expected JSON like {"topicA":[0,1],"topicB":[2]}')
    return Subscription(assign={topic: sorted(set(partitions)) for topic, partitions in content.items()})


def _position(given: Mapping[str, str], prefix: str, default: int) -> Position:
    """The more exact option wins: a timestamp for all, timestamps, offsets."""
    strategy = given.get(f"{prefix}offsetsbytimestampstrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise OptionError(f"{prefix}OffsetsByTimestampStrategy: {strategy!r} is neither error nor latest")
    # Where no record is at or after an ending timestamp, everything there is comes before it.
    fallback = prefix == "ending" or strategy == "latest"
    timestamp = given.get(f"{prefix}timestamp")
    if timestamp is not None:
        return Position(timestamp_ms=_number(given, f"{prefix}Timestamp", least=0), fallback_latest=fallback)
    timestamps = given.get(f"{prefix}offsetsbytimestamp")
    if timestamps is not None:
        content = parse_offsets(timestamps, f"{prefix}OffsetsByTimestamp")
        if any(at < 0 for each in content.values() for at in each.values()):
            raise OptionError(f"{prefix}OffsetsByTimestamp: timestamps are not negative")
        return Position(timestamps_ms=content, fallback_latest=fallback)
    text = given.get(f"{prefix}offsets", "").strip()
    named = {"": default, "earliest": EARLIEST, "latest": LATEST}.get(text.lower())
    if named is not None:
        return Position(whole=named)
    return Position(offsets=parse_offsets(text, f"{prefix}Offsets"))


def parse_offsets(text: str, what: str) -> PartitionOffsets:
    """Offsets as Spark's Kafka source writes them: {"topic":{"0":23}}. Raises OptionError."""
    example = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
    content = _json_object(text, what, example)
    found: PartitionOffsets = {}
    for topic, partitions in content.items():
        if not isinstance(partitions, dict):
            raise OptionError(f"{what}: expected JSON like {example}")
        found[topic] = {}
        for partition, offset in partitions.items():
            if not partition.isdecimal() or type(offset) is not int or offset < EARLIEST:
                raise OptionError(f"{what}: expected JSON like {example}")
            found[topic][int(partition)] = offset
    return found


def _json_object(text: str, what: str, example: str) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except ValueError:
        content = None
    if not isinstance(content, dict) or not content:
        raise OptionError(f"{what}: expected JSON like {example}, got {text!r}")
    return content


def _check_batch(starting: Position, ending: Position) -> None:
    if starting.whole == LATEST:
        raise OptionError("a batch query cannot start at the latest offset")
    if ending.whole == EARLIEST:
        raise OptionError("a batch query cannot end at the earliest offset")
    for position, forbidden, what in (
        (starting, LATEST, "startingOffsets: -1 (latest)"),
        (ending, EARLIEST, "endingOffsets: -2 (earliest)"),
    ):
        for partitions in (position.offsets or {}).values():
            if forbidden in partitions.values():
                raise OptionError(f"{what} is not allowed in a batch query")


def _number(given: Mapping[str, str], name: str, *, least: int = 1, default: int | None = None) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return default
    try:
        number = int(text.strip())
    except ValueError:
        number = least - 1
    if number < least:
        raise OptionError(f"{name}: {text!r} is not a whole number of at least {least}")
    return number


def _duration_ms(given: Mapping[str, str], name: str, default_ms: int) -> int:
    """A duration as Spark writes it: 15m, 10s, 500ms; a bare number is milliseconds."""
    text = given.get(name.lower())
    if text is None:
        return default_ms
    match = re.fullmatch(r"(\d+)\s*([a-z]*)", text.strip().lower())
    unit = None if match is None else _TIME_UNITS_MS.get(match[2] or "ms")
    if match is None or unit is None:
        raise OptionError(f"{name}: {text!r} is not a duration like 15m")
    return int(int(match[1]) * unit)
