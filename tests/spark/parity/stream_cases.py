"""The streaming scenarios of the parity suite. `$name` stands for a topic of the scenario's own."""

from typing import Any, Final

from tests.spark.parity.streams import Abort, Create, Delete, DeleteRecords, Fill, Grow, Make, Run, Scenario

_LENIENT: Final = {"failOnDataLoss": "false"}
_EARLIEST: Final = {"startingOffsets": "earliest"}


def _named(name: str, *steps: Any, **options: str) -> Scenario:
    """A scenario about the topic `$a`, from its beginning."""
    return Scenario(f"stream: {name}", steps, {"subscribe": "$a", **_EARLIEST, **options})


def _pattern(name: str, *steps: Any, **options: str) -> Scenario:
    return Scenario(f"stream: {name}", steps, {"subscribePattern": "$a.*", **_EARLIEST, **options})


_FILLED: Final = (Create("a", 2), Fill("a", (10, 5)))

TOPIC_SCENARIOS: Final = [
    _named("a stream continues from its checkpoint", *_FILLED, Run(), Fill("a", (3, 0)), Run(), Run()),
    _named("nothing to read", Create("a"), Run(), Fill("a", (4,)), Run()),
    _named("new partitions", *_FILLED, Run(), Grow("a", 4), Fill("a", (1, 0, 4, 2)), Run()),
    _named(
        "new partitions while it runs",
        *_FILLED,
        Run(
            trigger="running",
            rows=19,
            meanwhile=(
                (15, Grow("a", 3)),
                (15, Fill("a", (0, 0, 4))),
            ),
            options={"kafka.metadata.max.age.ms": "500"},
        ),
    ),
    _pattern("a new topic of a pattern", *_FILLED, Run(), Create("ab"), Fill("ab", (6,)), Run()),
    _pattern("a topic of a pattern is deleted", *_FILLED, Create("ab"), Fill("ab", (6,)), Run(), Delete("ab"), Run()),
    _pattern(
        "a topic of a pattern is deleted, lenient",
        *_FILLED,
        Create("ab"),
        Fill("ab", (6,)),
        Run(),
        Delete("ab"),
        Fill("a", (2, 0)),
        Run(),
        **_LENIENT,
    ),
    _pattern("a pattern without match", Run(), *_FILLED, Run()),
    _named("the topic is deleted", *_FILLED, Run(), Delete("a"), Run()),
    _named("the topic is deleted, lenient", *_FILLED, Run(), Delete("a"), Run(), **_LENIENT),
    _named("a missing topic", Run(), **{"kafka.default.api.timeout.ms": "4000", "kafka.request.timeout.ms": "3000"}),
    _named("recreated with fewer records", *_FILLED, Run(), Delete("a"), Create("a", 2), Fill("a", (4, 5)), Run()),
    _named(
        "recreated with fewer records, lenient",
        *_FILLED,
        Run(),
        Delete("a"),
        Create("a", 2),
        Fill("a", (4, 5)),
        Run(),
        **_LENIENT,
    ),
    _named("recreated with more records", *_FILLED, Run(), Delete("a"), Create("a", 2), Fill("a", (14, 9)), Run()),
    _named(
        "recreated with more records, lenient",
        *_FILLED,
        Run(),
        Delete("a"),
        Create("a", 2),
        Fill("a", (14, 9)),
        Run(),
        **_LENIENT,
    ),
    _named("recreated with fewer partitions", *_FILLED, Run(), Delete("a"), Create("a", 1), Fill("a", (12,)), Run()),
    _named("records deleted before they are read", *_FILLED, Run(), Fill("a", (9, 0)), DeleteRecords("a", 15), Run()),
    _named(
        "records deleted before they are read, lenient",
        *_FILLED,
        Run(),
        Fill("a", (9, 0)),
        DeleteRecords("a", 15),
        Run(),
        **_LENIENT,
    ),
    _named("a new partition begins late", *_FILLED, DeleteRecords("a", 4), Run(), Fill("a", (1, 1)), Run()),
]

LIMIT_SCENARIOS: Final = [
    _named("maxOffsetsPerTrigger", *_FILLED, Run(), Fill("a", (7, 30)), Run(), maxOffsetsPerTrigger="6"),
    _named(
        "maxOffsetsPerTrigger below the number of partitions",
        Create("a", 5),
        Fill("a", (3, 2, 1, 9, 0)),
        Run(),
        maxOffsetsPerTrigger="2",
    ),
    _named(
        "maxOffsetsPerTrigger with new partitions",
        *_FILLED,
        Run(),
        Grow("a", 3),
        Fill("a", (2, 2, 40)),
        Run(),
        maxOffsetsPerTrigger="10",
    ),
    _named(
        "maxOffsetsPerTrigger with Once", *_FILLED, Run(trigger="once"), Run(trigger="once"), maxOffsetsPerTrigger="6"
    ),
    _named(
        "maxOffsetsPerTrigger changes",
        *_FILLED,
        Run({"maxOffsetsPerTrigger": "4"}),
        Fill("a", (20, 20)),
        Run({"maxOffsetsPerTrigger": "15"}),
    ),
    _named(
        "minOffsetsPerTrigger with AvailableNow", *_FILLED, Run(), Fill("a", (3, 0)), Run(), minOffsetsPerTrigger="10"
    ),
    _named(
        "minOffsetsPerTrigger waits",
        *_FILLED,
        Run(
            trigger="running",
            rows=45,
            meanwhile=(
                (15, Fill("a", (9, 0))),
                (15, Fill("a", (21, 0))),
            ),
        ),
        minOffsetsPerTrigger="30",
    ),
    _named(
        "maxTriggerDelay ends the wait",
        *_FILLED,
        Run(trigger="running", rows=18, meanwhile=((15, Fill("a", (3, 0))),)),
        minOffsetsPerTrigger="30",
        maxTriggerDelay="2s",
    ),
    _named(
        "minimum and maximum",
        *_FILLED,
        Run(),
        Fill("a", (9, 30)),
        Run(),
        minOffsetsPerTrigger="5",
        maxOffsetsPerTrigger="12",
    ),
    _named("minimum above maximum", *_FILLED, Run(), minOffsetsPerTrigger="12", maxOffsetsPerTrigger="5"),
    _named("maxTriggerDelay is no duration", *_FILLED, Run(), minOffsetsPerTrigger="5", maxTriggerDelay="soon"),
    _named("maxOffsetsPerTrigger 0", *_FILLED, Run(), maxOffsetsPerTrigger="0"),
    _named("maxRecordsPerPartition", *_FILLED, Run(), maxRecordsPerPartition="4"),
    _named("minPartitions", *_FILLED, Run(), minPartitions="9"),
]

START_SCENARIOS: Final = [
    _named("Once", *_FILLED, Run(trigger="once"), Fill("a", (1, 2)), Run(trigger="once")),
    _named("from latest", *_FILLED, Run(), Fill("a", (3, 1)), Run(), startingOffsets="latest"),
    Scenario("stream: from the default position", (*_FILLED, Run(), Fill("a", (3, 1)), Run()), {"subscribe": "$a"}),
    _named("from offsets", *_FILLED, Run(), startingOffsets='{"$a": {"0": 7, "1": -1}}'),
    _named("from offsets of some partitions", *_FILLED, Run(), startingOffsets='{"$a": {"0": 7}}'),
    _named("from offsets beyond the log", *_FILLED, Run(), startingOffsets='{"$a": {"0": 70, "1": 2}}'),
    _named(
        "from offsets beyond the log, lenient", *_FILLED, Run(), startingOffsets='{"$a": {"0": 70, "1": 2}}', **_LENIENT
    ),
    _named("from a timestamp", *_FILLED, Run(), startingTimestamp="4000"),
    _named("from a timestamp without a match", *_FILLED, Run(), startingTimestamp="9000"),
    _named(
        "from a timestamp without a match, latest",
        *_FILLED,
        Run(),
        Fill("a", (0, 2)),
        Run(),
        startingTimestamp="9000",
        startingOffsetsByTimestampStrategy="latest",
    ),
    _named(
        "from timestamps by partition", *_FILLED, Run(), startingOffsetsByTimestamp='{"$a": {"0": 2000, "1": 5000}}'
    ),
    _named("new options of a position have no effect later", *_FILLED, Run(), Run({"startingOffsets": "latest"})),
    _named("endingOffsets in a stream", *_FILLED, Run(), endingOffsets="latest"),
    _named("endingTimestamp in a stream", *_FILLED, Run(), endingTimestamp="5"),
    Scenario("stream: assign", (*_FILLED, Run(), Fill("a", (2, 2)), Run()), {"assign": '{"$a": [1]}', **_EARLIEST}),
    _named("another subscription later", *_FILLED, Create("b"), Fill("b", (4,)), Run(), Run({"subscribe": "$a,$b"})),
    _named(
        "a topic leaves the subscription", *_FILLED, Create("b"), Fill("b", (4,)), Run({"subscribe": "$a,$b"}), Run()
    ),
    _named(
        "a topic leaves the subscription, lenient",
        *_FILLED,
        Create("b"),
        Fill("b", (4,)),
        Run({"subscribe": "$a,$b"}),
        Fill("a", (1, 0)),
        Run(),
        **_LENIENT,
    ),
    _named(
        "aborted records, committed",
        *_FILLED,
        Abort("a", 4),
        Run(),
        Fill("a", (2, 0)),
        Run(),
        **{"kafka.isolation.level": "read_committed"},
    ),
    _named("aborted records, all", *_FILLED, Abort("a", 4), Run(), Fill("a", (2, 0)), Run()),
    _named(
        "only aborted records with a limit",
        *_FILLED,
        Abort("a", 20),
        Run(),
        maxOffsetsPerTrigger="7",
        **{"kafka.isolation.level": "read_committed"},
    ),
]

_APPEND_TIME: Final = {"message.timestamp.type": "LogAppendTime"}
_HEADERS: Final = {"includeHeaders": "true"}


def _made(name: str, dataset: str, **options: str) -> Scenario:
    """A scenario about a topic of the batch cases, in one run and in small micro-batches."""
    steps = (Make(dataset), Run(), Run({"maxOffsetsPerTrigger": "9"}))
    return Scenario(f"stream: {name}", steps, {"subscribe": f"${dataset}", **_EARLIEST, **options})


COLUMN_SCENARIOS: Final = [
    _made("headers", "headers", **_HEADERS),
    _made("headers in small micro-batches", "headers", maxOffsetsPerTrigger="9", **_HEADERS),
    _made("headers left out", "headers"),
    _made("headers where there are none", "nulls", **_HEADERS),
    _made("null and empty keys and values", "nulls"),
    _made("times that jump", "times"),
    _made("records that were compacted", "compacted"),
    _made("times of the broker", "append"),
    _named(
        "few rows with times of the broker",
        Create("a", 2, _APPEND_TIME),
        Fill("a", (3, 2)),
        Run(),
        Fill("a", (1, 0)),
        Run(),
    ),
    _named("includeHeaders later", *_FILLED, Run(), Fill("a", (3, 1)), Run(_HEADERS)),
]

SCENARIOS: Final = [*TOPIC_SCENARIOS, *LIMIT_SCENARIOS, *START_SCENARIOS, *COLUMN_SCENARIOS]
