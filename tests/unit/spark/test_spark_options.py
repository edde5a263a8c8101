"""Options of the Spark source and sink: what is accepted, what is refused, which of several wins."""

import pytest

from odradek.spark.option_names import OptionError
from odradek.spark.options import EARLIEST, LATEST, SinkOptions, SourceOptions, parse_offsets
from odradek.spark.topic_pattern import compile_pattern

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
SUBSCRIBED = {**SERVERS, "subscribe": "t"}


def source(**options: str) -> SourceOptions:
    # Spark hands option names over in lower case
    return SourceOptions.parse({**SUBSCRIBED, **{k.lower(): v for k, v in options.items()}}, streaming=True)


def batch_source(**options: str) -> SourceOptions:
    return SourceOptions.parse({**SUBSCRIBED, **{k.lower(): v for k, v in options.items()}}, streaming=False)


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    stream, batch = source(), batch_source()
    assert stream.starting.whole == LATEST
    assert (batch.starting.whole, batch.ending.whole) == (EARLIEST, LATEST)
    assert stream.fail_on_data_loss
    assert not stream.include_headers
    assert (stream.poll_timeout_ms, stream.fetch_offset_retries, stream.fetch_offset_retry_interval_ms) == (
        120_000,
        3,
        10,
    )
    assert stream.max_trigger_delay_ms == 900_000
    assert (stream.min_partitions, stream.max_offsets_per_trigger, stream.min_offsets_per_trigger) == (None,) * 3


@pytest.mark.parametrize(
    "given", [{}, {"subscribe": "a", "assign": '{"a":[0]}'}, {"subscribe": "a", "subscribepattern": "a.*"}]
)
def test_exactly_one_subscription(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="exactly one"):
        SourceOptions.parse({**SERVERS, **given}, streaming=True)


def test_subscriptions() -> None:
    assert source(subscribe=" a, b ,c").subscription.subscribe == ["a", "b", "c"]
    assigned = SourceOptions.parse({**SERVERS, "assign": '{"a":[1,0],"b":[2]}'}, streaming=True)
    assert assigned.subscription.assign == {"a": [0, 1], "b": [2]}
    pattern = SourceOptions.parse({**SERVERS, "subscribepattern": "top.*"}, streaming=True)
    assert pattern.subscription.pattern == "top.*"


@pytest.mark.parametrize("text", ["", "[]", '{"a":0}', '{"a":["0"]}', '{"a":[-1]}', "nonsense"])
def test_malformed_assign(text: str) -> None:
    with pytest.raises(OptionError, match="assign"):
        SourceOptions.parse({**SERVERS, "assign": text}, streaming=True)


def test_the_more_exact_starting_option_wins() -> None:
    given = {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"t":{"0":5}}'}
    assert source(**given).starting.timestamps_ms == {"t": {0: 5}}
    assert source(**given, startingTimestamp="7").starting.timestamp_ms == 7


def test_strategy_for_timestamps_without_a_match() -> None:
    assert not source(startingTimestamp="7").starting.fallback_latest
    assert source(startingTimestamp="7", startingOffsetsByTimestampStrategy="latest").starting.fallback_latest
    assert batch_source(endingTimestamp="7").ending.fallback_latest
    with pytest.raises(OptionError, match="Strategy"):
        source(startingOffsetsByTimestampStrategy="guess")


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_streams_have_no_end(name: str) -> None:
    with pytest.raises(OptionError, match=name):
        source(**{name: "latest"})


@pytest.mark.parametrize(
    "given",
    [
        {"startingOffsets": "latest"},
        {"endingOffsets": "earliest"},
        {"startingOffsets": '{"t":{"0":-1}}'},
        {"endingOffsets": '{"t":{"0":-2}}'},
    ],
)
def test_batch_queries_reject_the_wrong_ends(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="batch query"):
        batch_source(**given)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"t":3}', '{"t":{"x":3}}', '{"t":{"0":"3"}}', '{"t":{"0":-3}}'])
def test_malformed_offsets(text: str) -> None:
    with pytest.raises(OptionError, match="expected JSON"):
        parse_offsets(text, "startingOffsets")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("maxOffsetsPerTrigger", "0"),
        ("minPartitions", "x"),
        ("maxRecordsPerPartition", "-1"),
        ("includeHeaders", "yes"),
        ("failOnDataLoss", ""),
        ("maxTriggerDelay", "soon"),
        ("startingTimestamp", "-5"),
    ],
)
def test_malformed_values(name: str, text: str) -> None:
    with pytest.raises(OptionError, match=name):
        source(**{name: text})


@pytest.mark.parametrize(
    ("text", "wanted_ms"), [("15m", 900_000), ("2s", 2000), ("1500", 1500), ("1 h", 3_600_000), ("20ms", 20)]
)
def test_durations(text: str, wanted_ms: int) -> None:
    assert source(maxTriggerDelay=text).max_trigger_delay_ms == wanted_ms


def test_the_minimum_is_not_above_the_maximum() -> None:
    with pytest.raises(OptionError, match="minOffsetsPerTrigger"):
        source(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="4")


@pytest.mark.parametrize(
    "name",
    ["auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit", "interceptor.classes"],
)
def test_kafka_settings_that_the_source_rejects(name: str) -> None:
    with pytest.raises(OptionError, match=name):
        source(**{f"kafka.{name}": "x"})


def test_kafka_settings_go_to_the_client() -> None:
    given = {"kafka.isolation.level": "read_committed", "kafka.receive.buffer.bytes": "65536"}
    options = source(**given, **{"kafka.metrics.recording.level": "INFO"})
    assert options.client == (
        ("bootstrap_servers", "127.0.0.1:9092"),
        ("isolation_level", "read_committed"),
        ("receive_buffer_bytes", "65536"),
    )
    with pytest.raises(OptionError, match=r"kafka\.no\.such"):
        source(**{"kafka.no.such": "1"})


def test_bootstrap_servers_are_required() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers"):
        SourceOptions.parse({"subscribe": "t"}, streaming=True)


def test_commits_need_a_group() -> None:
    assert source(**{"commitOffsets": "true", "kafka.group.id": "g"}).commit_group == "g"
    assert source(**{"kafka.group.id": "g"}).commit_group is None
    with pytest.raises(OptionError, match=r"kafka\.group\.id"):
        source(commitOffsets="true")


def test_a_group_names_the_clients_and_is_committed_to() -> None:
    plain = source(**{"kafka.group.id": "g"})
    assert dict(plain.client)["client_id"] == "consumer-g"
    assert "group_id" not in dict(plain.client)
    made = [source(groupIdPrefix="mine", commitOffsets="true") for _ in range(2)]
    groups = [each.commit_group or "" for each in made]
    assert all(group.startswith("mine-") for group in groups)
    assert groups[0] != groups[1], "every query has its own"
    assert dict(made[0].client)["client_id"] == f"consumer-{groups[0]}"
    both = source(**{"groupIdPrefix": "mine", "kafka.group.id": "g", "kafka.client.id": "c", "commitOffsets": "true"})
    assert both.commit_group == "g"
    assert dict(both.client)["client_id"] == "c"
    assert "client_id" not in dict(source().client)


def test_markers_have_a_topic_unless_an_empty_one_is_given() -> None:
    assert SinkOptions.parse(SERVERS, streaming=False).marker_topic == "odradek-spark-batches"
    assert SinkOptions.parse({**SERVERS, "markertopic": "m"}, streaming=False).marker_topic == "m"
    assert SinkOptions.parse({**SERVERS, "markertopic": ""}, streaming=False).marker_topic is None


def test_writes_are_exactly_once_by_default() -> None:
    stream = SinkOptions.parse({**SERVERS, "checkpointlocation": "/c"}, streaming=True)
    assert stream.exactly_once
    assert not SinkOptions.parse({**SERVERS, "deliveryguarantee": "at-least-once"}, streaming=True).exactly_once
    assert SinkOptions.parse(SERVERS, streaming=False).exactly_once
    with pytest.raises(OptionError, match="checkpointLocation or transactionalId"):
        SinkOptions.parse(SERVERS, streaming=True)
    with pytest.raises(OptionError, match="deliveryGuarantee"):
        SinkOptions.parse({**SERVERS, "deliveryguarantee": "at-most-once"}, streaming=True)


@pytest.mark.parametrize("name", ["key.serializer", "value.serializer", "transactional.id", "partitioner.class"])
def test_kafka_settings_that_the_sink_rejects(name: str) -> None:
    with pytest.raises(OptionError, match=name):
        SinkOptions.parse({**SERVERS, f"kafka.{name}": "x"}, streaming=False)


def test_security_options_go_to_the_client() -> None:
    given = {
        "kafka.security.protocol": "SSL",
        "kafka.ssl.truststore.location": "/ca.pem",
        "kafka.ssl.key.password": "x",
    }
    expected = {"security_protocol": "SSL", "ssl_truststore_location": "/ca.pem", "ssl_key_password": "x"}
    assert expected.items() <= dict(source(**given).client).items()
    assert (
        expected.items() <= dict(SinkOptions.parse({**SERVERS, **given, "topic": "t"}, streaming=False).client).items()
    )


def test_options_print_no_password() -> None:
    given = {"kafka.bootstrap.servers": "x:1", "kafka.sasl.plain.password": "planted"}
    source = SourceOptions.parse(given | {"subscribe": "t"}, streaming=False)
    assert "planted" not in repr(source) + repr(SinkOptions.parse(given, streaming=False))


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("startingOffset", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("kafka.isolation.levels", "kafka.isolation.level"),
    ],
)
def test_unknown_source_option_is_an_error_naming_the_nearest(name: str, hint: str) -> None:
    with pytest.raises(OptionError, match=f"did you mean {hint}"):
        source(**{name: "earliest"})


def test_unknown_sink_option_is_an_error_naming_the_nearest() -> None:
    with pytest.raises(OptionError, match="deliveryguarantees; did you mean deliveryGuarantee"):
        SinkOptions.parse({**SERVERS, "deliveryguarantees": "exactly-once"}, streaming=False)
    with pytest.raises(OptionError, match=r"no option colour$"):
        SinkOptions.parse({**SERVERS, "colour": "blue"}, streaming=False)


def test_our_options_are_errors_on_the_other_side() -> None:
    with pytest.raises(OptionError, match="deliveryGuarantee is an option of the sink"):
        source(deliveryGuarantee="exactly-once")
    with pytest.raises(OptionError, match="commitOffsets is an option of the source"):
        SinkOptions.parse({**SERVERS, "commitoffsets": "true"}, streaming=False)


def test_options_of_sparks_connector_are_accepted_on_both_sides() -> None:
    given = {**SERVERS, "failondataloss": "false", "path": "t"}
    assert SinkOptions.parse(given, streaming=False).topic is None
    assert source(topic="out", queryName="q", checkpointLocation="/c").fail_on_data_loss


@pytest.mark.parametrize("given", [{"deliveryguarantee": "at-least-once"}, {"transactionalid": "q"}])
def test_source_group_needs_a_checkpoint_and_exactly_once(given: dict[str, str]) -> None:
    with pytest.raises(OptionError, match="sourceGroup needs"):
        SinkOptions.parse({**SERVERS, **given, "sourcegroup": "g"}, streaming=True)


@pytest.mark.parametrize("text", [r"\p{Alpha}in", "[a[bc]]", "[a-z&&[^b]]", "x[[]", r"\Qa\E", "(?<name>a)", "("])
def test_pattern_that_python_reads_otherwise_is_an_error(text: str) -> None:
    with pytest.raises(OptionError, match=r"subscribePattern: .* no regular expression that both"):
        SourceOptions.parse({**SERVERS, "subscribepattern": text}, streaming=True)


@pytest.mark.parametrize(
    ("text", "name"), [("tin", "x.tin-a"), (r"[\]\[a]+$", "ba"), ("[]a-c.]", "a"), ("[a||b]", "b")]
)
def test_pattern_is_found_anywhere_in_a_name(text: str, name: str) -> None:
    assert compile_pattern(text).search(name)


def test_stream_reader_raises_wrong_options_when_used() -> None:
    """PySpark covers what `streamReader` itself raises with an UnboundLocalError."""
    pytest.importorskip("pyspark")
    from odradek.spark.data_source import OdradekDataSource

    reader = OdradekDataSource({**SUBSCRIBED, "endingoffsets": "latest"}).streamReader(None)
    with pytest.raises(OptionError, match="endingOffsets is not valid in streaming queries"):
        reader.initialOffset()
