"""The kinds of connectors: their names, their settings, and how a task of each is made.

Other names than ours are those of the connectors whose settings these understand, so that configurations can move.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from odradek.client.errors import ClientError
from odradek.connect import connector_settings
from odradek.connect.connector_settings import CLIENT_PREFIXES, CONVERTER_PREFIXES, TRANSFORM_PREFIX, subset
from odradek.connect.conversion import Conversion
from odradek.connect.http_settings import check_http
from odradek.connect.model import Kind
from odradek.connect.object_folder import STORAGE_PREFIX, check_folder, is_url
from odradek.connect.queries import spark_sql
from odradek.connect.settings import Checked, Setting, check
from odradek.connect.sinks import cluster as cluster_sink
from odradek.connect.sinks import delta as delta_sink
from odradek.connect.sinks import files as files_sink
from odradek.connect.sinks import http as http_sink
from odradek.connect.sinks import iceberg as iceberg_sink
from odradek.connect.sinks import sql as sql_sink
from odradek.connect.sinks.objects import ObjectsSink
from odradek.connect.sinks.sink import Sink
from odradek.connect.sinks.tables import TableSink
from odradek.connect.sources import cluster as cluster_source
from odradek.connect.sources import files as files_source
from odradek.connect.sources import http as http_source
from odradek.connect.sources import sql as sql_source
from odradek.connect.sources.source import Source
from odradek.connect.transforms import can_route, transforms_of


class TaskPlace(NamedTuple):
    """Which task of which connector."""

    connector: str
    task: int
    tasks: int


MakeSink = Callable[[Mapping[str, Any], Mapping[str, str], TaskPlace], Sink]
MakeQuery = Callable[[Mapping[str, Any], Mapping[str, str], TaskPlace], spark_sql.QueryPlan]
MakeSource = Callable[[Mapping[str, Any], Mapping[str, str], TaskPlace], Source]
CheckTogether = Callable[[Mapping[str, Any]], dict[str, list[str]]]


def _nothing_more(_values: Mapping[str, Any]) -> dict[str, list[str]]:
    return {}


class Plugin(NamedTuple):
    """One kind of connector."""

    name: str
    kind: Kind
    summary: str
    settings: Sequence[Setting]
    make: MakeSink | MakeSource | MakeQuery
    tasks: Callable[[Mapping[str, Any]], int]
    """Tasks that a configuration has work for."""
    other_names: Sequence[str] = ()
    check: CheckTogether = _nothing_more
    prefix: str = ""
    """What names of further settings begin with."""
    has_clients: bool = True
    """Whether these are settings of clients of another cluster."""
    converters: tuple[str, str] = ("string", "json")
    """Default converters of keys and values."""
    is_query: bool = False
    """Whether Spark runs it, which converts and transforms records itself."""

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What names of settings may begin with that are no settings of this list."""
        own = (self.prefix,) if self.prefix else ()
        local = () if self.is_query else (*CONVERTER_PREFIXES, TRANSFORM_PREFIX)
        return (*CLIENT_PREFIXES, *local, *own)

    def all_settings(self) -> list[Setting]:
        """The settings of this kind, with those that all have. A kind's own one replaces the common one."""
        own = {each.name for each in self.settings}
        role = connector_settings.SINK if self.kind is Kind.SINK else connector_settings.SOURCE
        shared = [
            each
            for each in (*connector_settings.COMMON, *role)
            if not self.is_query or each.name in connector_settings.QUERY
        ]
        defaults = dict(zip(("key.converter", "value.converter"), self.converters, strict=True))
        return [
            each._replace(default=defaults.get(each.name, each.default)) for each in shared if each.name not in own
        ] + list(self.settings)


def _most(_values: Mapping[str, Any]) -> int:
    return 1 << 31


def _one(_values: Mapping[str, Any]) -> int:
    return 1


def _client_options(config: Mapping[str, str], prefix: str) -> dict[str, str]:
    return {name.replace(".", "_"): text for name, text in subset(config, prefix).items()}


def _sql_sink(values: Mapping[str, Any], _config: Mapping[str, str], place: TaskPlace) -> Sink:
    return sql_sink.SqlSink(values, place.connector)


def _delta_sink(values: Mapping[str, Any], config: Mapping[str, str], place: TaskPlace) -> Sink:
    tables = delta_sink.DeltaFormat(
        values[STORAGE_PREFIX], f"odradek-connect/{place.connector}", values["partition.by"]
    )
    return TableSink(tables, values["table.path"], values, place.connector, routes=_routes(values, config))


def _iceberg_sink(values: Mapping[str, Any], config: Mapping[str, str], place: TaskPlace) -> Sink:
    tables = iceberg_sink.IcebergFormat(values[iceberg_sink.PREFIX], place.connector, values["partition.by"])
    return TableSink(tables, values["table.name"], values, place.connector, routes=_routes(values, config))


def _routes(values: Mapping[str, Any], config: Mapping[str, str]) -> bool:
    """Whether transforms may change the topics of records."""
    return can_route(values["transforms"], subset(config, TRANSFORM_PREFIX))


def _files_sink(values: Mapping[str, Any], _config: Mapping[str, str], place: TaskPlace) -> Sink:
    if is_url(values["directory"]):
        return ObjectsSink(values, place.connector)
    return files_sink.FilesSink(values, place.connector)


def _file_stream_sink(values: Mapping[str, Any], _config: Mapping[str, str], place: TaskPlace) -> Sink:
    return files_sink.FileStreamSink(values, place.connector)


def _http_sink(values: Mapping[str, Any], _config: Mapping[str, str], place: TaskPlace) -> Sink:
    return http_sink.HttpSink(values, place.connector)


def _cluster_sink(values: Mapping[str, Any], config: Mapping[str, str], place: TaskPlace) -> Sink:
    options = _client_options(config, cluster_sink.PREFIX)
    return cluster_sink.ClusterSink(values, options, group_of(place.connector))


def _spark_sql(values: Mapping[str, Any], _config: Mapping[str, str], place: TaskPlace) -> spark_sql.QueryPlan:
    return spark_sql.QueryPlan(place.connector, values)


def _sql_source(values: Mapping[str, Any], _config: Mapping[str, str], place: TaskPlace) -> Source:
    tables = values["table.whitelist"][place.task :: place.tasks]
    return sql_source.SqlSource(values, place.connector, tables)


def _files_source(values: Mapping[str, Any], _config: Mapping[str, str], place: TaskPlace) -> Source:
    return files_source.FilesSource(values, place.connector)


def _http_source(values: Mapping[str, Any], _config: Mapping[str, str], place: TaskPlace) -> Source:
    return http_source.HttpSource(values, place.connector)


def _cluster_source(values: Mapping[str, Any], config: Mapping[str, str], _place: TaskPlace) -> Source:
    return cluster_source.ClusterSource(values, _client_options(config, cluster_source.PREFIX))


_FILE: Final = "org.apache.kafka.connect.file."
_JDBC: Final = "io.confluent.connect.jdbc."
PLUGINS: Final = (
    Plugin("SqlSink", Kind.SINK, "rows in tables of SQLite, PostgreSQL or MySQL, exactly once", sql_sink.SETTINGS,
           _sql_sink, _most, (f"{_JDBC}JdbcSinkConnector",), sql_sink.check),
    Plugin("DeltaSink", Kind.SINK, "rows in Delta tables on disks and object stores, exactly once",
           delta_sink.SETTINGS, _delta_sink, _most, check=delta_sink.check, prefix=STORAGE_PREFIX,
           has_clients=False),
    Plugin("IcebergSink", Kind.SINK, "rows in Iceberg tables of any catalog that PyIceberg knows, exactly once",
           iceberg_sink.SETTINGS, _iceberg_sink, _most, check=iceberg_sink.check, prefix=iceberg_sink.PREFIX,
           has_clients=False),
    Plugin("FilesSink", Kind.SINK, "JSON, CSV or Parquet files in a folder or on S3, exactly once", files_sink.SETTINGS,
           _files_sink, _most, check=check_folder, prefix=STORAGE_PREFIX, has_clients=False),
    Plugin("FileStreamSink", Kind.SINK, "lines at the end of a file", files_sink.FILE_STREAM_SETTINGS,
           _file_stream_sink, _one, (f"{_FILE}FileStreamSinkConnector",), converters=("string", "string")),
    Plugin("HttpSink", Kind.SINK, "requests to an HTTP service", http_sink.SETTINGS, _http_sink, _most,
           check=check_http),
    Plugin("ClusterSink", Kind.SINK, "topics of another cluster, exactly once", cluster_sink.SETTINGS, _cluster_sink,
           _one, check=cluster_sink.check, prefix=cluster_sink.PREFIX, converters=("bytes", "bytes")),
    Plugin("SparkSql", Kind.SINK, "rows of a query in Spark SQL, in a topic or a Delta table, exactly once",
           spark_sql.SETTINGS, _spark_sql, _one, check=spark_sql.check, prefix=STORAGE_PREFIX, has_clients=False,
           is_query=True),
    Plugin("SqlSource", Kind.SOURCE, "new and changed rows of SQLite, PostgreSQL or MySQL, exactly once",
           sql_source.SETTINGS, _sql_source, lambda values: len(values["table.whitelist"]),
           (f"{_JDBC}JdbcSourceConnector",), sql_source.check),
    Plugin("DirectorySource", Kind.SOURCE, "lines of the files of a folder, or of objects on S3, exactly once",
           files_source.DIRECTORY_SETTINGS, _files_source, _one, check=check_folder, prefix=STORAGE_PREFIX,
           has_clients=False),
    Plugin("FileStreamSource", Kind.SOURCE, "lines of a file that grows, exactly once",
           files_source.FILE_STREAM_SETTINGS, _files_source, _one, (f"{_FILE}FileStreamSourceConnector",),
           converters=("string", "string")),
    Plugin("HttpSource", Kind.SOURCE, "answers of an HTTP service, by cursor or ETag", http_source.SETTINGS,
           _http_source, _one, check=http_source.check),
    Plugin("ClusterSource", Kind.SOURCE, "topics of another cluster, exactly once", cluster_source.SETTINGS,
           _cluster_source, _one, check=cluster_source.check, prefix=cluster_source.PREFIX,
           converters=("bytes", "bytes")),
)  # fmt: skip


def group_of(connector: str) -> str:
    """The group of a sink's tasks, as Kafka Connect names it."""
    return f"connect-{connector}"


def find(name: str) -> Plugin | None:
    """The kind of that name: ours, another connector's full name, or the last part of it, with or without Connector."""
    for each in PLUGINS:
        known = {each.name, *each.other_names, *(full.rpartition(".")[2] for full in each.other_names)}
        if name in known or name.removesuffix("Connector") in known:
            return each
    return None


def check_config(plugin: Plugin, config: Mapping[str, str]) -> Checked:
    """Read a connector's configuration, all its settings together."""
    checked = check(plugin.all_settings(), config, plugin.prefixes)
    values, errors = checked
    if plugin.prefix:
        values[plugin.prefix] = subset(config, plugin.prefix)
    if plugin.kind is Kind.SINK and not errors.keys() & {"topics", "topics.regex"}:
        errors.update(_check_topics(values))
    if not plugin.is_query:
        errors.update(_check_conversion(values, config, is_complete=not errors))
    if not errors:
        errors.update(plugin.check(values))
    errors.update(_check_clients(plugin, config))
    return checked


def _check_conversion(
    values: Mapping[str, Any], config: Mapping[str, str], *, is_complete: bool
) -> dict[str, list[str]]:
    """What is wrong with transforms, and, if all settings are there, with converters."""
    try:
        transforms = transforms_of(values.get("transforms", []), subset(config, TRANSFORM_PREFIX))
    except ValueError as error:
        return {"transforms": [str(error)]}
    if not is_complete:
        return {}
    try:
        Conversion.of(values, config, transforms)
    except ValueError as error:
        return {"value.converter": [f"converter: {error}"]}
    return {}


def _check_topics(values: Mapping[str, Any]) -> dict[str, list[str]]:
    if bool(values["topics"]) == bool(values["topics.regex"]):
        return {"topics": ["topics: either topics or topics.regex expected"]}
    try:
        pattern = re.compile(values["topics.regex"])
    except re.error as error:
        return {"topics.regex": [f"topics.regex: {error}"]}
    # what a sink or a query writes, it would read and write again without an end
    for name in ("errors.deadletterqueue.topic.name", "topic"):
        written = values.get(name, "")
        if written and (written in values["topics"] or pattern.fullmatch(written)):
            return {name: [f"{name}: the connector reads this topic"]}
    return {}


def _check_clients(plugin: Plugin, config: Mapping[str, str]) -> dict[str, list[str]]:
    """Settings of clients that do not exist, or have values that a client does not accept."""
    from odradek.client.config import resolve_admin, resolve_consumer, resolve_producer

    resolvers: dict[str, Callable[[Mapping[str, Any]], Any]] = {
        "consumer.override.": resolve_consumer,
        "producer.override.": resolve_producer,
    }
    if plugin.prefix and plugin.has_clients:
        resolvers[plugin.prefix] = resolve_consumer if plugin.kind is Kind.SOURCE else resolve_admin
    errors: dict[str, list[str]] = {}
    for prefix, resolve in resolvers.items():
        try:
            resolve(_client_options(config, prefix))
        except ClientError as error:
            errors[f"{prefix}*"] = [f"{prefix}*: {error}"]
    return errors


def consumer_options(config: Mapping[str, str]) -> dict[str, str]:
    """Options of a sink's consumer in its configuration."""
    return _client_options(config, "consumer.override.")


def producer_options(config: Mapping[str, str]) -> dict[str, str]:
    """Options of a source's producer, or of that of a sink's dead letters, in its configuration."""
    return _client_options(config, "producer.override.")


def spark_options(options: Mapping[str, Any]) -> dict[str, str]:
    """A client's options as those of Spark's sources and sinks."""
    return {
        f"kafka.{name.replace('_', '.')}": str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in options.items()
        if value is not None
    }


DEFAULT_CONSUMER: Final[Mapping[str, Any]] = {
    "auto_offset_reset": "earliest",
    "isolation_level": "read_committed",
    "enable_auto_commit": False,
}
"""A sink's consumer, unless the configuration says otherwise."""
