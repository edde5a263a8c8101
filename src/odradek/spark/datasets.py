"""What a streaming query reads and writes, by the names that OpenLineage gives to datasets."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from odradek.spark.option_names import OptionError
from odradek.spark.options import SinkOptions, SourceOptions
from odradek.spark.stores.databases import Database, Postgres, Sqlite

_NAME: Final = "odradek"
"""The name of our data source in Spark's plans."""


class Dataset(NamedTuple):
    """A topic, a table or a folder."""

    namespace: str
    """The system that has it."""
    name: str
    """Its name in that system."""


def topic(client: Iterable[tuple[str, str]], name: str) -> Dataset:
    """A topic of the cluster that these options of a client lead to; the first of its servers stands for it."""
    servers = dict(client)["bootstrap_servers"]
    return Dataset(f"kafka://{servers.split(',')[0].strip().rpartition('//')[2]}", name)


def path(location: str) -> Dataset:
    """A folder, or a URL of an object store."""
    parts = urlsplit(location)
    if len(parts.scheme) > 1 and parts.scheme != "file":
        return Dataset(f"{parts.scheme}://{parts.netloc}", parts.path.strip("/"))
    return Dataset("file", os.path.abspath(parts.path if parts.scheme == "file" else location))


def table(database: Database, name: str) -> Dataset | None:
    """A table; None in a database of another kind than ours."""
    if isinstance(database, Sqlite):
        return Dataset("file", f"{os.path.abspath(database.path)}/{name}")
    if not isinstance(database, Postgres):
        return None
    from psycopg.conninfo import conninfo_to_dict

    given = conninfo_to_dict(database.conninfo)
    qualified = name if "." in name else f"public.{name}"
    return Dataset(
        f"postgres://{given.get('host', 'localhost')}:{given.get('port', 5432)}",
        f"{given.get('dbname', given.get('user', ''))}.{qualified}",
    )


class Written:
    """What the functions of `foreachBatch` of this process have written: Spark's plans do not say it."""

    def __init__(self) -> None:
        self._by_query: dict[str, dict[Dataset, None]] = {}

    def note(self, frame: Any, dataset: Dataset | None) -> None:
        """Note that the query to which a batch belongs writes a dataset; nothing outside of a query."""
        # with Spark Connect there is no context, and the query cannot be asked for
        context = getattr(frame.sparkSession, "_sc", None)
        query_id = None if context is None else context.getLocalProperty("sql.streaming.queryId")
        if query_id is not None and dataset is not None:
            self._by_query.setdefault(query_id, {})[dataset] = None

    def of(self, query_id: str) -> list[Dataset]:
        """What a query has written."""
        return list(self._by_query.get(query_id, ()))


WRITTEN: Final = Written()
"""That of this process."""


def read_topics(report: Mapping[str, Any], options: Sequence[SourceOptions | None]) -> list[Dataset]:
    """The topics in a query's progress; `options` are those of its sources, in order, None for sources of others."""
    found: dict[Dataset, None] = {}
    for source, given in zip(report.get("sources", ()), options, strict=False):
        ends = source.get("endOffset")
        if given is not None and isinstance(ends, dict):
            # names without partitions are what the source notes of its cluster
            found |= {topic(given.client, name): None for name, partitions in ends.items() if partitions}
    return list(found)


def sink_topic(query: Any) -> Dataset | None:
    """The topic of our sink in a running query's plan, which is Java's; None for other sinks and for a column."""
    from py4j.protocol import Py4JError

    try:
        plan = query.logicalPlan()
        if plan.getClass().getSimpleName() != "WriteToMicroBatchDataSource" or plan.table().name() != _NAME:
            return None
        names = ("topic", "kafka.bootstrap.servers")
        options = {name: plan.writeOptions().get(name) for name in names}
        given = {name: str(value.get()) for name, value in options.items() if value.isDefined()}
        parsed = SinkOptions.parse({**given, "deliveryguarantee": "at-least-once"}, streaming=True)
    except (Py4JError, AttributeError, TypeError, OptionError):
        # this Spark does not show the plan, or not yet
        return None
    return None if parsed.topic is None else topic(parsed.client, parsed.topic)
