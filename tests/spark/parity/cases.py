"""The batch cases of the parity suite: which topics, which options. In the options `$name` stands for a topic."""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from tests.spark.parity.data import CODECS, PARTITIONS


class Case(NamedTuple):
    """One batch query, given to both connectors with the same options."""

    name: str
    options: Mapping[str, str]
    counts_tasks: bool = False
    """Whether the number of tasks is compared, too. Without options for it, ours are fewer on purpose."""


def positions(topic: str, *offsets: int) -> str:
    """Offsets, or timestamps, of the partitions from 0 on."""
    return json.dumps({f"${topic}": {str(partition): offset for partition, offset in enumerate(offsets)}})


def _subscribe(name: str, topic: str, counts_tasks: bool = False, /, **options: str) -> Case:
    return Case(name, {"subscribe": f"${topic}", **options}, counts_tasks)


def _kafka(**settings: str) -> dict[str, str]:
    return {f"kafka.{name.replace('_', '.')}": value for name, value in settings.items()}


_WIDE_START: Final = [
    partition % 3 - 2 if partition % 3 < 1 else 10 * (partition % 5) for partition in range(PARTITIONS)
]
_WIDE_END: Final = [-1 if partition % 4 == 0 else 50 + partition for partition in range(PARTITIONS)]
_BOTH_LEVELS: Final = ("read_committed", "read_uncommitted")
_QUICK: Final = _kafka(default_api_timeout_ms="4000", request_timeout_ms="3000")
"""How long the official connector asks for what is not there."""
_IMPATIENT: Final = {"kafkaConsumer.pollTimeoutMs": "2000"}

CODEC_CASES: Final = [_subscribe(f"64 partitions of 1 KB rows, {codec}", f"wide_{codec}") for codec in CODECS]

SPLIT_CASES: Final = [
    _subscribe("minPartitions 100", "wide_zstd", True, minPartitions="100"),
    _subscribe("minPartitions below the number of partitions", "wide_zstd", True, minPartitions="7"),
    _subscribe("minPartitions of an uneven topic", "deleted", True, minPartitions="9"),
    _subscribe("minPartitions with more tasks than records", "small", True, minPartitions="40"),
    _subscribe("maxRecordsPerPartition of a whole topic", "wide_zstd", True, maxRecordsPerPartition="77"),
    _subscribe(
        "maxRecordsPerPartition",
        "small",
        True,
        maxRecordsPerPartition="3",
        startingOffsets=positions("small", 1, 0),
        endingOffsets=positions("small", 10, 6),
    ),
    _subscribe(
        "maxRecordsPerPartition 1",
        "small",
        True,
        maxRecordsPerPartition="1",
        startingOffsets=positions("small", 0, 0),
        endingOffsets=positions("small", 10, 7),
    ),
    _subscribe("both", "wide_none", True, maxRecordsPerPartition="250", minPartitions="150"),
    _subscribe("minPartitions within transactions", "transactions", True, minPartitions="30"),
    _subscribe("minPartitions within compacted gaps", "compacted", True, minPartitions="50"),
]

CONTENT_CASES: Final = [
    _subscribe("codecs mixed in one partition", "mixed"),
    _subscribe("headers", "headers", includeHeaders="true"),
    _subscribe("headers left out", "headers"),
    _subscribe("headers where there are none", "nulls", includeHeaders="TRUE"),
    _subscribe("tombstones and empty keys and values", "nulls"),
    _subscribe("LogAppendTime", "append"),
    _subscribe("timestamps in any order", "times"),
    _subscribe("large values", "large"),
    _subscribe("an empty topic", "empty"),
    _subscribe("compacted gaps", "compacted"),
    *(_subscribe(f"transactions, {each}", "transactions", **_kafka(isolation_level=each)) for each in _BOTH_LEVELS),
    *(_subscribe(f"open transaction, {each}", "unfinished", **_kafka(isolation_level=each)) for each in _BOTH_LEVELS),
]

FETCH_CASES: Final = [
    _subscribe("partition fetches of 1 byte", "large", **_kafka(max_partition_fetch_bytes="1")),
    _subscribe("fetches of 1 byte", "wide_zstd", **_kafka(fetch_max_bytes="1", max_partition_fetch_bytes="100")),
    _subscribe("max.poll.records 1", "headers", **_kafka(max_poll_records="1"), includeHeaders="true"),
    _subscribe("fetch.min.bytes", "small", **_kafka(fetch_min_bytes="100000", fetch_max_wait_ms="100")),
    _subscribe("a group of its own", "small", **_kafka(group_id="parity")),
    _subscribe("a prefix of groups", "small", groupIdPrefix="parity"),
    _subscribe("without check.crcs", "mixed", **_kafka(check_crcs="false")),
]

POSITION_CASES: Final = [
    _subscribe("earliest to latest", "small", startingOffsets="EARLIEST", endingOffsets="Latest"),
    _subscribe(
        "offsets, -2 and -1 by partition",
        "wide_zstd",
        startingOffsets=positions("wide_zstd", *_WIDE_START),
        endingOffsets=positions("wide_zstd", *_WIDE_END),
    ),
    _subscribe(
        "within batches", "mixed", startingOffsets=positions("mixed", 17), endingOffsets=positions("mixed", 133)
    ),
    _subscribe(
        "within an aborted transaction",
        "transactions",
        startingOffsets=positions("transactions", 15, 3),
        endingOffsets=positions("transactions", 33, 8),
        **_kafka(isolation_level="read_committed"),
    ),
    _subscribe(
        "only aborted records",
        "transactions",
        startingOffsets=positions("transactions", 12, 60),
        endingOffsets=positions("transactions", 20, 200),
        **_kafka(isolation_level="read_committed"),
    ),
    _subscribe(
        "from and to offsets in gaps",
        "compacted",
        startingOffsets=positions("compacted", 50),
        endingOffsets=positions("compacted", 198),
    ),
    _subscribe(
        "only a gap", "compacted", startingOffsets=positions("compacted", 20), endingOffsets=positions("compacted", 60)
    ),
    _subscribe("records deleted", "deleted"),
    _subscribe(
        "start equals end", "small", startingOffsets=positions("small", 5, 7), endingOffsets=positions("small", 5, 7)
    ),
    _subscribe("start at the end of the log", "small", startingOffsets=positions("small", 10, 7)),
    Case("two topics", {"subscribe": "$small, $other,"}),
    Case("one topic twice", {"subscribe": "$small,$small"}),
    Case("a pattern", {"subscribePattern": "${small}|${other}$$"}),
    Case("a pattern found anywhere", {"subscribePattern": "small"}),
    Case("a pattern without match", {"subscribePattern": "${small}x+"}),
    Case("a pattern of internal topics", {"subscribePattern": "^__consumer.*"}),
    Case("assign", {"assign": json.dumps({"$other": [2, 0], "$small": [1]})}),
    Case(
        "assign with offsets",
        {"assign": json.dumps({"$other": [2]}), "startingOffsets": json.dumps({"$other": {"2": 4}})},
    ),
    Case("assign one partition twice", {"assign": json.dumps({"$small": [1, 1]})}),
]

_BY_TIME: Final = positions("times", 4500, 2500, 7000, -1)
TIMESTAMP_CASES: Final = [
    _subscribe("startingTimestamp", "small", startingTimestamp="3000"),
    _subscribe("startingTimestamp between records", "wide_zstd", startingTimestamp="1600000010000"),
    _subscribe("endingTimestamp", "times", endingTimestamp="5000"),
    _subscribe("endingTimestamp after all records", "times", endingTimestamp="253402300800000"),
    _subscribe("both timestamps", "small", startingTimestamp="2000", endingTimestamp="6001"),
    _subscribe(
        "by partition",
        "times",
        startingOffsetsByTimestamp=positions("times", 4500, 2500, 7000, 1),
        startingOffsetsByTimestampStrategy="latest",
    ),
    _subscribe("ends by partition", "times", endingOffsetsByTimestamp=positions("times", 4500, 2500, 7000, 99)),
    _subscribe("a timestamp wins", "small", startingTimestamp="3000", startingOffsets=positions("small", 9, 1)),
    _subscribe(
        "a timestamp wins over those by partition",
        "small",
        startingTimestamp="3000",
        startingOffsetsByTimestamp=positions("small", 9000, 1000),
    ),
    _subscribe("no match, default strategy", "times", startingTimestamp="8000"),
    _subscribe("no match, error", "times", startingTimestamp="8000", startingOffsetsByTimestampStrategy="Error"),
    _subscribe("no match, latest", "times", startingTimestamp="8000", startingOffsetsByTimestampStrategy="latest"),
    _subscribe("timestamp 0", "small", startingTimestamp="0"),
    _subscribe("timestamps of an empty topic", "empty", startingTimestamp="5"),
    _subscribe("timestamps out of order", "small", startingTimestamp="6000", endingTimestamp="2000"),
    _subscribe("timestamps in transactions", "transactions", startingTimestamp="50000"),
]

_BEYOND: Final = {"endingOffsets": positions("small", 10, 9), **_IMPATIENT}
_EXPIRED: Final = {"startingOffsets": positions("deleted", 0, 10, 20, -2), **_IMPATIENT}
_ALL_EXPIRED: Final = {**_EXPIRED, "endingOffsets": positions("deleted", 50, 40, 60, -1)}
_LENIENT: Final = {"failOnDataLoss": "false"}
LOSS_CASES: Final = [
    _subscribe("end beyond the log", "small", **_BEYOND),
    _subscribe("end beyond the log, lenient", "small", **_BEYOND, **_LENIENT),
    _subscribe("start beyond the log", "small", startingOffsets=positions("small", 10, 9), **_IMPATIENT),
    _subscribe(
        "start beyond the log, lenient", "small", startingOffsets=positions("small", 10, 9), **_IMPATIENT, **_LENIENT
    ),
    _subscribe(
        "start and end beyond the log, lenient",
        "small",
        startingOffsets=positions("small", 0, 9),
        **_BEYOND | {"endingOffsets": positions("small", 10, 12)},
        **_LENIENT,
    ),
    _subscribe("start at deleted records", "deleted", **_EXPIRED),
    _subscribe("start at deleted records, lenient", "deleted", **_EXPIRED, **_LENIENT),
    _subscribe("start and end at deleted records", "deleted", **_ALL_EXPIRED),
    _subscribe("start and end at deleted records, lenient", "deleted", **_ALL_EXPIRED, **_LENIENT),
    _subscribe(
        "start after end", "small", startingOffsets=positions("small", 5, 0), endingOffsets=positions("small", 4, 7)
    ),
    _subscribe(
        "start after end, lenient",
        "small",
        startingOffsets=positions("small", 5, 0),
        endingOffsets=positions("small", 4, 7),
        **_LENIENT,
    ),
    Case("a missing topic", {"subscribe": "$missing", **_QUICK}),
    Case("a missing topic, lenient", {"subscribe": "$missing", **_LENIENT, **_QUICK}),
    Case("a missing topic beside another", {"subscribe": "$small,$missing", **_QUICK}),
    Case("assign of a missing topic", {"assign": json.dumps({"$missing": [0]}), **_QUICK}),
    Case("assign of a missing partition", {"assign": json.dumps({"$small": [0, 5]}), **_QUICK}),
]


def _wrong(name: str, **options: str) -> Case:
    """An option of the small topic that is an error, as we understand the guide."""
    return _subscribe(name, "small", **{key.replace("__", "."): value for key, value in options.items()})


OPTION_CASES: Final = [
    Case("no topics", {}),
    Case("two ways to name topics", {"subscribe": "$small", "subscribePattern": "s"}),
    Case("subscribe is empty", {"subscribe": " , "}),
    Case("subscribePattern is empty", {"subscribePattern": ""}),
    Case("subscribePattern is malformed", {"subscribePattern": "a(b"}),
    Case("assign is no JSON", {"assign": "small"}),
    Case("assign is an empty object", {"assign": "{}"}),
    Case("assign without partitions", {"assign": json.dumps({"$small": []})}),
    Case("no brokers", {"subscribe": "$small", "kafka.bootstrap.servers": ""}),
    _wrong("startingOffsets latest", startingOffsets="latest"),
    _wrong("endingOffsets earliest", endingOffsets="earliest"),
    _wrong("startingOffsets with -1", startingOffsets=positions("small", 0, -1)),
    _wrong("endingOffsets with -2", endingOffsets=positions("small", 5, -2)),
    _wrong("offsets below -2", startingOffsets=positions("small", 0, -3)),
    _wrong("startingOffsets of some partitions", startingOffsets=positions("small", 3)),
    _wrong("startingOffsets of more partitions", startingOffsets=positions("small", 3, 3, 3)),
    _wrong("startingOffsets of another topic", startingOffsets=positions("other", 3, 3, 3)),
    _wrong("endingOffsets of some partitions", endingOffsets=positions("small", 3)),
    _wrong("timestamps of some partitions", startingOffsetsByTimestamp=positions("small", 3000)),
    _wrong("startingOffsets is no JSON", startingOffsets="soon"),
    _wrong("startingOffsets with text", startingOffsets='{"$small": {"0": "a", "1": 2}}'),
    _wrong("startingTimestamp is text", startingTimestamp="noon"),
    _wrong("startingTimestamp is negative", startingTimestamp="-5"),
    _wrong("an unknown strategy", startingTimestamp="1", startingOffsetsByTimestampStrategy="nearest"),
    _wrong("minPartitions 0", minPartitions="0"),
    _wrong("minPartitions is text", minPartitions="few"),
    _wrong("maxRecordsPerPartition negative", maxRecordsPerPartition="-1"),
    _wrong("includeHeaders is no boolean", includeHeaders="yes"),
    _wrong("failOnDataLoss is no boolean", failOnDataLoss="maybe"),
    _wrong("pollTimeoutMs is text", kafkaConsumer__pollTimeoutMs="long"),
    _wrong("numRetries negative", fetchOffset__numRetries="-1"),
    _wrong("an unknown isolation level", kafka__isolation__level="read_all"),
    *(
        _wrong(f"kafka.{name} is Spark's", **{f"kafka__{name}": value})
        for name, value in {
            "auto.offset.reset": "earliest",
            "key.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
            "value.deserializer": "org.apache.kafka.common.serialization.StringDeserializer",
            "enable.auto.commit": "true",
            "interceptor.classes": "x.Y",
        }.items()
    ),
    _wrong("a rate limit in a batch", maxOffsetsPerTrigger="5"),
    _wrong("minimum above maximum in a batch", minOffsetsPerTrigger="9", maxOffsetsPerTrigger="5"),
    _wrong("an unknown option", startingOffset="earliest"),
    _wrong("an unknown setting of the client", kafka__no__such__setting="1"),
    _wrong("topic of the sink", topic="$other"),
]

GROUPS: Final[Mapping[str, list[Case]]] = {
    "codecs": CODEC_CASES,
    "tasks": SPLIT_CASES,
    "content": CONTENT_CASES,
    "fetches": FETCH_CASES,
    "positions": POSITION_CASES,
    "timestamps": TIMESTAMP_CASES,
    "loss": LOSS_CASES,
    "options": OPTION_CASES,
}
CASES: Final = [each for group in GROUPS.values() for each in group]
