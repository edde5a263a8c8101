"""Commits to Iceberg tables that carry positions: properties of the snapshots, so that they are those of the rows.

Each snapshot of a writer has all positions of that writer; a snapshot that something else made has those of its nearest
ancestor of the writer. A commit names the snapshot that it follows, and the catalog rejects it if there is another one
since. PyIceberg would repeat such a commit behind the other one: here it must fail, or rows would be there twice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final, TypeVar

from odradek.connect.errors import ConnectError, PositionMoved, TargetAway
from odradek.connect.table_formats.partitioning import Division
from odradek.spark.stores.patience import first_line

_RETRIES: Final = "commit.retry.num-retries"

T = TypeVar("T")


class IcebergCatalog:
    """Tables by name in one catalog, which is opened by the first use. Blocks: use it in a thread."""

    def __init__(self, options: Mapping[str, str]) -> None:
        """`options` are those of PyIceberg, with `name` as the name of the catalog."""
        self._options = dict(options)
        self._catalog: Any = None

    def load(self, name: str) -> Any:
        """The table as it is now; None if the catalog has none."""
        from pyiceberg.catalog import load_catalog
        from pyiceberg.exceptions import NoSuchTableError

        if self._catalog is None:
            options = dict(self._options)
            name_of_catalog = options.pop("name", "default")
            self._catalog = _load_or_create(lambda: load_catalog(name_of_catalog, **options))
        try:
            return self._catalog.load_table(name)
        except NoSuchTableError:
            return None

    def create(
        self,
        name: str,
        columns: Mapping[str, str],
        divisions: Sequence[Division] = (),
        properties: Mapping[str, str] | None = None,
    ) -> Any:
        """A new table, or the one that another process has made since `load` found none."""
        from pyiceberg.exceptions import TableAlreadyExistsError

        _load_or_create(lambda: self._catalog.create_namespace_if_not_exists(name.rpartition(".")[0]))
        schema = _schema(columns)
        try:
            return self._catalog.create_table(
                name, schema, partition_spec=_partition_spec(schema, divisions), properties=dict(properties or {})
            )
        except TableAlreadyExistsError:
            return self._catalog.load_table(name)

    def close(self) -> None:
        """Close connections to the catalog; the next use opens them."""
        catalog, self._catalog = self._catalog, None
        if catalog is not None:
            catalog.close()


def _load_or_create(attempt: Callable[[], T]) -> T:
    """Return what `attempt` returns, which loads something of a catalog or creates it.

    In a database, two tasks may both find nothing: the creation of the later one fails, and its next attempt loads.
    """
    try:
        from sqlalchemy.exc import DBAPIError
    except ImportError:  # the catalog is not in a database
        return attempt()
    try:
        return attempt()
    except DBAPIError:
        return attempt()


def exclusive(table: Any) -> Any:
    """A transaction that fails if there is another snapshot since the table was loaded."""
    # only in this copy: the commit sends changes, not this
    table.metadata.properties[_RETRIES] = "0"
    return table.transaction()


def marks(table: Any, name: str, snapshot: Any = None) -> dict[str, Any]:
    """The marks of that name in the snapshot (default: the current one) or in its nearest ancestor that has them.

    Empty if the table has none. Raises ConnectError if they may have been in a snapshot that has expired.
    """
    at = snapshot if snapshot is not None else table.current_snapshot()
    while at is not None:
        text = None if at.summary is None else at.summary.additional_properties.get(name)
        if text is not None:
            found: dict[str, Any] = json.loads(text)
            return found
        parent = at.parent_snapshot_id
        at = None if parent is None else table.snapshot_by_id(parent)
        if parent is not None and at is None:
            raise ConnectError(
                "the snapshots with positions have expired: others have changed the table since; expire fewer"
            )
    return {}


def add_columns(target: Any, columns: Mapping[str, str]) -> None:
    """Add columns to a table, or within a transaction."""
    made = _types()
    with target.update_schema() as update:
        for name, kind in columns.items():
            update.add_column((name,), made[kind])


def check_catalog(options: Mapping[str, str]) -> None:
    """Raises ValueError for a catalog that has no address."""
    if not (options.get("uri") or options.get("type")):
        raise ValueError("catalog.uri is missing: the address of the catalog, such as sqlite:///catalog.db")


def check_table_name(name: str) -> None:
    """Raises ValueError for a name without a namespace."""
    namespace, _, table = name.rpartition(".")
    if not namespace or not table:
        raise ValueError(f"{name}: NAMESPACE.TABLE expected")


@contextmanager
def table_failures(name: str) -> Iterator[None]:
    """Raise failures of a commit as PositionMoved, of an absent catalog or store as TargetAway, others as ConnectError.

    `name` is the table's.
    """
    from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException, ServiceUnavailableError

    try:
        yield
    except ConnectError:
        raise
    except CommitFailedException as error:
        raise PositionMoved(f"{name}: another task has committed to the table") from error
    except (OSError, CommitStateUnknownException, ServiceUnavailableError) as error:
        raise TargetAway(f"the table is away: {first_line(error)}") from error
    except Exception as error:
        # SQLAlchemy is there only with a catalog in a database
        if type(error).__name__ == "OperationalError":
            raise TargetAway(f"the catalog is away: {first_line(error)}") from error
        raise ConnectError(f"the table rejects it: {first_line(error)}") from error


def _types() -> dict[str, Any]:
    from pyiceberg import types

    return {
        "boolean": types.BooleanType(), "int": types.IntegerType(), "bigint": types.LongType(),
        "double": types.DoubleType(), "string": types.StringType(), "binary": types.BinaryType(),
        "timestamp": types.TimestamptzType(), "date": types.DateType(),
    }  # fmt: skip


def _schema(columns: Mapping[str, str]) -> Any:
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

    made = _types()
    return Schema(*(
        NestedField(number, name, made[kind], required=False) for number, (name, kind) in enumerate(columns.items(), 1)
    ))  # fmt: skip


def _partition_spec(schema: Any, divisions: Sequence[Division]) -> Any:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform

    transforms = {"": IdentityTransform, "hour": HourTransform, "day": DayTransform, "month": MonthTransform}
    return PartitionSpec(*(
        PartitionField(schema.find_field(each.source).field_id, 1000 + number, transforms[each.unit](), each.column)
        for number, each in enumerate(divisions)
    ))  # fmt: skip
