"""Topics transformed by a query in Spark SQL, into another topic, a Delta table or one of a database, each row once.

The query reads the view `records`: the fields of values as columns, and `__key`, `__topic`, `__partition`, `__offset`,
`__timestamp`. It runs as a streaming query, whose positions and state are in Spark's checkpoint.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from typing import Any, Final

from odradek.connect.databases import URL, check_database, database_of
from odradek.connect.mysql import is_mysql
from odradek.connect.object_folder import STORAGE_PREFIX
from odradek.connect.settings import REQUIRED, Importance, Setting, Type
from odradek.ports.installation import install_hint

VIEW: Final = "records"
_CORRUPT: Final = "__corrupt"
_LETTERS: Final = "errors.deadletterqueue.topic.name"
_COORDINATES: Final = (
    "CAST(key AS STRING) AS __key", "topic AS __topic", "partition AS __partition", "offset AS __offset",
    "timestamp AS __timestamp",
)  # fmt: skip
SETTINGS: Final = (
    Setting("sql", Type.STRING, REQUIRED, "query in Spark SQL over the view records: fields of values, and __key, "
            "__topic, __partition, __offset, __timestamp", Importance.HIGH, group="Query"),
    Setting("value.columns", Type.STRING, "", "fields of values that are JSON objects, with types of Spark: "
            "id BIGINT, item STRING; without it the view has the text value", Importance.HIGH, group="Query"),
    Setting("checkpoint.location", Type.STRING, REQUIRED, "folder or URL for the query's positions and state, which "
            "no other query may have", Importance.HIGH, group="Query"),
    Setting("topic", Type.STRING, "", "topic for the rows of the result, as JSON objects", Importance.HIGH,
            group="Result"),
    Setting("key.column", Type.STRING, "", "column of the result that is the record's key", group="Result"),
    Setting("table.path", Type.STRING, "", "folder or URL of a Delta table for the rows, instead of a topic; settings "
            "of the object store as storage.NAME", group="Result"),
    Setting(URL, Type.STRING, "", "database with a table for the rows, instead of a topic: sqlite:///FILE or "
            "postgresql://HOST:PORT/NAME", group="Result"),
    Setting("connection.user", Type.STRING, "", "user, where the URL has none", group="Result"),
    Setting("connection.password", Type.PASSWORD, "", "password of the user", group="Result"),
    Setting("table.name", Type.STRING, "", "name of that table, which is created if it is missing", group="Result"),
    Setting("pk.fields", Type.LIST, [], "columns of the result that are the key of that table: rows replace those of "
            "the same key", group="Result"),
    Setting("output.mode", Type.STRING, "append", "append: rows that are final; update: rows of groups that have "
            "changed; complete: all groups after each batch", choices=("append", "update", "complete"), group="Query"),
    Setting("watermark.delay", Type.STRING, "", "how late records may be, by __timestamp, such as 10 minutes: with "
            "it groups by windows of time become final", group="Query"),
    Setting("starting.offsets", Type.STRING, "earliest", "where a new query begins", choices=("earliest", "latest"),
            group="Query"),
    Setting("trigger.interval.ms", Type.LONG, 1_000, "shortest time from batch to batch", minimum=0, group="Query"),
    Setting("max.offsets.per.trigger", Type.LONG, 0, "most records of a batch; 0: without limit", minimum=0,
            group="Query"),
    Setting("errors.tolerance", Type.STRING, "none", "none: a value that is no JSON object of value.columns fails the "
            "query; all: its record is skipped", choices=("none", "all"), group="Error Handling"),
    Setting(_LETTERS, Type.STRING, "", "topic for the skipped records, of a query that "
            "writes a topic", group="Error Handling"),
    Setting("errors.retry.timeout", Type.LONG, 300_000, "ms for which a query that fails without progress is started "
            "again; -1: without limit", minimum=-1, group="Error Handling"),
    Setting("errors.retry.delay.max.ms", Type.LONG, 60_000, "longest pause between two attempts", minimum=1,
            group="Error Handling"),
)  # fmt: skip


def check(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """What is wrong with settings that are right one by one."""
    for package, extra in (("pyspark", "spark"), *((("deltalake", "stores"),) if values["table.path"] else ())):
        if importlib.util.find_spec(package) is None:
            line = f"connector.class: SparkSql needs packages that are not installed ({package})"
            return {"connector.class": [f"{line}: {install_hint(extra)}"]}
    if sum(bool(values[each]) for each in ("topic", "table.path", URL)) != 1:
        return {"topic": [f"topic: either topic or table.path or {URL} expected"]}
    return _check_result(values) or _check_letters(values)


def _check_result(values: Mapping[str, Any]) -> dict[str, list[str]]:
    if not values["topic"] and values["key.column"]:
        return {"key.column": ["key.column has no effect on a table"]}
    if values["table.path"] and values["output.mode"] != "append":
        return {"output.mode": ["output.mode: a Delta table takes append only"]}
    if not values["table.path"] and values[STORAGE_PREFIX]:
        return {STORAGE_PREFIX: [f"{STORAGE_PREFIX}* has no effect without table.path"]}
    if not values[URL]:
        unused = [
            each for each in ("connection.user", "connection.password", "table.name", "pk.fields") if values[each]
        ]
        return {each: [f"{each} has no effect without {URL}"] for each in unused}
    if is_mysql(values[URL].removeprefix("jdbc:")):
        return {URL: [f"{URL}: a query writes SQLite and PostgreSQL; let SqlSink copy a topic to MySQL"]}
    if not values["table.name"]:
        return {"table.name": [f"table.name is missing: needed with {URL}"]}
    if values["output.mode"] != "append" and not values["pk.fields"]:
        return {"pk.fields": ["pk.fields: needed with output.mode=update and complete, whose rows replace others"]}
    return check_database(values)


def _check_letters(values: Mapping[str, Any]) -> dict[str, list[str]]:
    if values["errors.tolerance"] == "all" and not values["value.columns"]:
        return {"errors.tolerance": ["errors.tolerance has no effect without value.columns"]}
    if values[_LETTERS]:
        if values["errors.tolerance"] != "all":
            return {_LETTERS: [f"{_LETTERS} has no effect without errors.tolerance=all"]}
        if not values["topic"] or values["output.mode"] != "append":
            return {_LETTERS: [f"{_LETTERS}: only with a topic and output.mode=append"]}
    return {}


class QueryPlan:
    """A query by its settings, as Spark's source, view and writer. Blocks: use it in a thread."""

    def __init__(self, connector: str, values: Mapping[str, Any]) -> None:
        """`values` are those of a checked configuration."""
        self._connector = connector
        self._values = values

    def start(self, session: Any, *, source: Mapping[str, str], sink: Mapping[str, str]) -> Any:
        """The streaming query. Raises OptionError, and PySparkException for a query that is wrong.

        `source` and `sink` are options of the data source's clients, with the prefix `kafka.`. The source has a group,
        whose offsets show the lag.
        """
        from odradek.spark.data_source import OdradekDataSource

        values = self._values
        # Spark looks for the writer's format in the session that is active in this thread
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)
        session.dataSource.register(OdradekDataSource)
        records = session.readStream.format("odradek").options(**self._source_options(source)).load()
        parsed = self._parsed(records)
        self._view(parsed).createOrReplaceTempView(VIEW)
        result = session.sql(values["sql"])
        letters = self._letters(parsed) if values[_LETTERS] else None
        writer = self._writer(result, letters, sink, source["kafka.group.id"]).outputMode(values["output.mode"])
        writer = writer.queryName(self._connector).trigger(
            processingTime=f"{values['trigger.interval.ms']} milliseconds"
        )
        return writer.option("checkpointLocation", values["checkpoint.location"]).start()

    def _source_options(self, client: Mapping[str, str]) -> dict[str, str]:
        from odradek.spark.options import SourceOptions

        values = self._values
        options = {**client, "startingOffsets": values["starting.offsets"]}
        if not values["topic"]:
            # a topic's writer commits them in its transaction
            options["commitOffsets"] = "true"
        if values[_LETTERS]:
            options["includeHeaders"] = "true"
        if values["topics"]:
            options["subscribe"] = ",".join(values["topics"])
        else:
            # Spark's patterns match anywhere in a name
            options["subscribePattern"] = f"^(?:{values['topics.regex']})$"
        if values["max.offsets.per.trigger"]:
            options["maxOffsetsPerTrigger"] = str(values["max.offsets.per.trigger"])
        SourceOptions.parse(options, streaming=True)
        return options

    def _parsed(self, records: Any) -> Any:
        """Records with the struct `fields` of their values, if the values have declared columns."""
        from pyspark.sql import functions

        columns = self._values["value.columns"]
        text = functions.col("value").cast("string")
        if not columns:
            return records
        if self._values["errors.tolerance"] == "none":
            parsed = functions.from_json(text, columns, {"mode": "FAILFAST"})
        else:
            options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
            parsed = functions.from_json(text, f"{columns}, {_CORRUPT} STRING", options)
        return records.withColumn("fields", parsed)

    def _view(self, parsed: Any) -> Any:
        from pyspark.sql import functions

        if not self._values["value.columns"]:
            view = parsed.select(
                functions.col("value").cast("string").alias("value"), *map(functions.expr, _COORDINATES)
            )
        else:
            if self._values["errors.tolerance"] == "all":
                parsed = parsed.where(f"fields.{_CORRUPT} IS NULL")
            view = parsed.select("fields", *map(functions.expr, _COORDINATES))
            view = view.select("fields.*", *(each.rpartition(" ")[2] for each in _COORDINATES)).drop(_CORRUPT)
        delay = self._values["watermark.delay"]
        return view.withWatermark("__timestamp", delay) if delay else view

    def _letters(self, parsed: Any) -> Any:
        """The records that are skipped, as rows of the topic of dead letters."""
        from pyspark.sql import functions

        from odradek.spark.dead_letters import HEADERS_TYPE, error_headers

        described = {"class": "ValueError", "message": "the value is no JSON object of value.columns", "stack": ""}
        error = functions.struct(*(functions.lit(text).alias(name) for name, text in described.items()))
        own = functions.coalesce("headers", functions.array().cast(HEADERS_TYPE))
        failed = parsed.where(f"fields.{_CORRUPT} IS NOT NULL").withColumn("error", error)
        return failed.select(
            functions.lit(self._values[_LETTERS]).alias("topic"),
            "key",
            "value",
            functions.concat(own, error_headers()).alias("headers"),
        )

    def _writer(self, result: Any, letters: Any, client: Mapping[str, str], group: str) -> Any:
        values = self._values
        if not values["topic"]:
            return result.writeStream.foreachBatch(self._table_sink())
        frame = self._as_records(result)
        options = {**client, "checkpointLocation": values["checkpoint.location"], "sourceGroup": group}
        if letters is None:
            options["topic"] = values["topic"]
        else:
            frame = self._routed(frame, letters)
        from odradek.spark.options import SinkOptions

        SinkOptions.parse(options, streaming=True)
        if values["output.mode"] == "append":
            return frame.writeStream.format("odradek").options(**options)
        from odradek.spark.exactly_once import write_exactly_once

        # Spark lets sources in Python append only
        return frame.writeStream.foreachBatch(lambda batch, number: write_exactly_once(batch, number, options))

    def _table_sink(self) -> Any:
        """The function that writes a micro-batch to a table."""
        values = self._values
        checkpoint = values["checkpoint.location"]
        if values["table.path"]:
            from odradek.spark.stores.delta import DeltaSink

            storage = values[STORAGE_PREFIX]
            return DeltaSink(values["table.path"], checkpoint, name=self._connector, storage_options=storage)
        from odradek.spark.stores.sql import SqlSink

        database = database_of(values[URL], values["connection.user"], values["connection.password"])
        return SqlSink(database, values["table.name"], checkpoint, key=values["pk.fields"], name=self._connector)

    def _routed(self, frame: Any, letters: Any) -> Any:
        """Rows of the result and dead letters, each with its topic: one transaction has both."""
        from pyspark.sql import functions

        from odradek.spark.dead_letters import HEADERS_TYPE

        key = functions.col("key") if "key" in frame.columns else functions.lit(None)
        rows = frame.select(
            functions.lit(self._values["topic"]).alias("topic"),
            key.cast("binary").alias("key"),
            functions.col("value").cast("binary").alias("value"),
            functions.lit(None).cast(HEADERS_TYPE).alias("headers"),
        )
        return rows.union(letters)

    def _as_records(self, result: Any) -> Any:
        """Rows as keys and JSON values."""
        from pyspark.sql import functions

        key = self._values["key.column"]
        fields = functions.struct(*(f"`{name.replace('`', '``')}`" for name in result.columns))
        value = functions.to_json(fields, {"ignoreNullFields": "false"}).alias("value")
        if not key:
            return result.select(value)
        return result.select(functions.col(f"`{key.replace('`', '``')}`").cast("string").alias("key"), value)
