"""Tables as files describe them: settings by the name of the table, checked."""

from __future__ import annotations

import importlib.util
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from odradek.client.config import resolve_consumer
from odradek.client.errors import ClientError
from odradek.connect import connector_settings, placeholders
from odradek.connect.connector_settings import CONVERTER_PREFIXES, ErrorPolicy, subset
from odradek.connect.converters import (
    REGISTRY_SETTINGS,
    JsonConverter,
    StringConverter,
    class_of,
    converter_of,
    registry_of,
)
from odradek.connect.errors import ConfigInvalid
from odradek.connect.registry_converters import FORMATS
from odradek.connect.settings import REQUIRED, Checked, Importance, Setting, Type, check
from odradek.connect.specification import read as read_files
from odradek.connect.table_formats.iceberg import check_catalog, check_table_name
from odradek.connect.table_formats.partitioning import Division, parse_divisions
from odradek.ports.installation import install_hint
from odradek.tables.decoding import KEY, VALUE, Converter, Decoder, has_fields
from odradek.tables.planning import Rules
from odradek.tables.registry_fields import RegistryFields
from odradek.tables.schema import COORDINATES, check_name, parse_columns

STORAGE_PREFIX: Final = "storage."
CATALOG_PREFIX: Final = "catalog."
CONSUMER_PREFIX: Final = "consumer.override."
_PACKAGES: Final = {"AVRO": "fastavro", "PROTOBUF": "google.protobuf"}
_SHARED: Final = ("errors.retry.timeout", "errors.retry.delay.max.ms")

SETTINGS: Final = (
    Setting("topic", Type.STRING, REQUIRED, "the topic", Importance.HIGH),
    Setting("format", Type.STRING, "delta", "the format of the table", choices=("delta", "iceberg")),
    Setting("path", Type.STRING, REQUIRED, "folder or URL of a Delta table, with settings of an object store as "
            "storage.NAME; or NAMESPACE.TABLE of an Iceberg table, with settings of its catalog as catalog.NAME",
            Importance.HIGH),
    Setting("mode", Type.STRING, "append", "append: each record is a row; upsert: the last record of a key replaces "
            "its row, and a null value deletes it", Importance.HIGH, choices=("append", "upsert")),
    Setting("key.converter", Type.CLASS, "string", "converter of keys: string, json, bytes, avro, protobuf "
            "or json-schema", Importance.LOW),
    Setting("value.converter", Type.CLASS, "json", "converter of values: json, string, bytes, avro, protobuf or "
            "json-schema; the last three have the settings value.converter.NAME, where NAME is "
            + ", ".join(each.name for each in REGISTRY_SETTINGS), Importance.LOW),
    *(each for each in connector_settings.COMMON if each.name in _SHARED),
    Setting("key.columns", Type.LIST, [KEY], "column of the key, or fields of a key that is an object"),
    Setting("columns", Type.LIST, [], "declared columns as NAME TYPE; types: boolean, bigint, double, string, binary, "
            "timestamp, date", Importance.HIGH),
    Setting("new.fields", Type.STRING, "add", "a field without a column: add makes a column of the type of its first "
            "value, drop leaves the field out, reject makes the record a bad one", choices=("add", "drop", "reject")),
    Setting("partition.by", Type.LIST, [], "what a new table is divided by: columns, hour(COLUMN), day(COLUMN), "
            "month(COLUMN)"),
    Setting("start", Type.STRING, "earliest", "where a new table begins: earliest, latest, a time in ISO 8601, or "
            "PARTITION:OFFSET, …", Importance.HIGH),
    Setting("existing.table", Type.STRING, "reject", "append: write into a table that something else has made, if its "
            "columns fit", choices=("reject", "append")),
    Setting("bad.records", Type.STRING, "table", "table: a record that makes no row goes to a table of its own; fail: "
            "the table stops at it", choices=("table", "fail")),
    Setting("bad.records.path", Type.STRING, "", "folder or URL of the table of bad records; default: the path with "
            "_bad behind it"),
    Setting("data.loss", Type.STRING, "fail", "fail: stop if records were deleted before they were read; skip: log "
            "it and continue with the first record there is", choices=("fail", "skip")),
    Setting("commit.records", Type.INT, 100_000, "most records of a commit, about", minimum=1),
    Setting("commit.interval.ms", Type.LONG, 10_000, "longest time before gathered records are committed", minimum=0),
    Setting("compact.interval.ms", Type.LONG, 3_600_000, "time between two looks for small files to join; 0: never",
            minimum=0),
    Setting("compact.target.bytes", Type.LONG, 128 << 20, "size of files that small ones are joined to", minimum=1),
)  # fmt: skip
"""The settings of a table."""


class Start(NamedTuple):
    """Where a new table begins."""

    kind: str
    """`earliest`, `latest`, `time` or `offsets`."""
    time_ms: int = 0
    offsets: Mapping[int, int] = {}
    """By partition; partitions that are missing begin with their first record."""


class TableSpec(NamedTuple):
    """One table as its specification describes it."""

    name: str
    """Stands for the writer in the table for ever."""
    topic: str
    path: str
    is_iceberg: bool
    storage: Mapping[str, str]
    """Options of the object store."""
    catalog: Mapping[str, str]
    """Properties of the catalog."""
    bad_path: str
    """Where bad records go; empty if they fail the table."""
    columns: Mapping[str, str]
    """Columns that the table has from its beginning, with their types: keys, declared ones, coordinates."""
    divisions: tuple[Division, ...]
    decoder: Decoder
    rules: Rules
    start: Start
    may_adopt: bool
    """Whether a table that something else has made may be written into."""
    skips_lost: bool
    """Whether records that were deleted before they were read are skipped."""
    commit_records: int
    commit_interval_s: float
    compact_interval_s: float
    """Infinite for never."""
    compact_target_bytes: int
    policy: ErrorPolicy
    consumer: Mapping[str, str]
    """Options of the consumer."""


def read(paths: Sequence[Path], secrets: Path | None) -> dict[str, TableSpec]:
    """The tables of files, by name. Raises SpecificationError, ConfigInvalid with lines that name table and setting."""
    found: dict[str, TableSpec] = {}
    for name, config in read_files(paths, "tables").items():
        # a file of one table has its name among the settings
        found[name] = spec_of(name, {each: text for each, text in config.items() if each != "name"}, secrets)
    by_path: dict[str, str] = {}
    for name, spec in found.items():
        for path in filter(None, (spec.path, spec.bad_path)):
            other = by_path.setdefault(path.rstrip("/"), name)
            if other != name or (spec.bad_path and spec.path.rstrip("/") == spec.bad_path.rstrip("/")):
                raise ConfigInvalid({"path": [f"table {name}: path={path}: table {other} has it already"]})
    return found


def spec_of(name: str, given: Mapping[str, str], secrets: Path | None = None) -> TableSpec:
    """The table of these settings. Raises ConfigInvalid."""
    if re.fullmatch(r"[\w.-]+", name) is None:
        raise ConfigInvalid({"name": [f"table {name!r}: letters, digits, '_', '-' and '.' expected in a name"]})
    try:
        config = placeholders.resolve(given, secrets)
    except ValueError as error:
        raise ConfigInvalid({"": [f"table {name}: {error}"]}) from None
    checked = check(
        SETTINGS, config, (*CONVERTER_PREFIXES, STORAGE_PREFIX, CATALOG_PREFIX, CONSUMER_PREFIX), of="a table"
    )
    if not checked.errors:
        spec = _spec(name, checked, config)
    if checked.errors:
        raise ConfigInvalid(
            {each: [f"table {name}: {line}" for line in lines] for each, lines in checked.errors.items()}
        )
    return spec


def _spec(name: str, checked: Checked, config: Mapping[str, str]) -> TableSpec:
    """The table of settings that are right one by one; adds to the errors what is wrong with them together."""
    values = checked.values

    def part(setting: str, make: Callable[[], Any], otherwise: Any) -> Any:
        try:
            return make()
        except (ValueError, ClientError) as error:
            checked.errors.setdefault(setting, []).append(f"{setting}: {error}")
            return otherwise

    is_iceberg = values["format"] == "iceberg"
    part("format", lambda: _check_format(values, config), None)
    keys = tuple(values["key.columns"]) or (KEY,)
    key = part("key.converter", lambda: _converter(values, config, "key"), StringConverter())
    value = part("value.converter", lambda: _converter(values, config, "value"), JsonConverter())
    declared = part("columns", lambda: parse_columns(values["columns"]), {})
    columns = part("key.columns", lambda: _columns(keys, key, value, declared), {})
    divisions = part("partition.by", lambda: parse_divisions(values["partition.by"], columns), ())
    consumer = {each.replace(".", "_"): text for each, text in subset(config, CONSUMER_PREFIX).items()}
    part("consumer.override.*", lambda: resolve_consumer(consumer), None)
    retry_ms, compact_ms = values["errors.retry.timeout"], values["compact.interval.ms"]
    bad_path = values["bad.records.path"] or f"{values['path'].rstrip('/')}_bad"
    return TableSpec(
        name=name,
        topic=values["topic"],
        path=values["path"],
        is_iceberg=is_iceberg,
        storage=subset(config, STORAGE_PREFIX),
        catalog=subset(config, CATALOG_PREFIX),
        bad_path=bad_path if values["bad.records"] == "table" else "",
        columns=columns,
        divisions=divisions,
        decoder=Decoder(key, value, keys, frozenset(each.column for each in divisions if each.unit)),
        rules=Rules(keys if values["mode"] == "upsert" else (), values["new.fields"]),
        start=part("start", lambda: parse_start(values["start"]), Start("earliest")),
        may_adopt=values["existing.table"] == "append",
        skips_lost=values["data.loss"] == "skip",
        commit_records=values["commit.records"],
        commit_interval_s=values["commit.interval.ms"] / 1000,
        compact_interval_s=compact_ms / 1000 if compact_ms else math.inf,
        compact_target_bytes=values["compact.target.bytes"],
        policy=ErrorPolicy(
            tolerates_records=bool(bad_path),
            retry_s=math.inf if retry_ms < 0 else retry_ms / 1000,
            longest_pause_s=values["errors.retry.delay.max.ms"] / 1000,
            logs_records=False,
            dead_letters="",
            describes_failures=False,
        ),
        consumer=consumer,
    )


def _check_format(values: Mapping[str, Any], config: Mapping[str, str]) -> None:
    """Raises ValueError for settings that the format does not have, or that it lacks."""
    is_iceberg = values["format"] == "iceberg"
    package, extra = ("pyiceberg", "iceberg") if is_iceberg else ("deltalake", "stores")
    if importlib.util.find_spec(package) is None:
        raise ValueError(f"{values['format']} needs a package: {install_hint(extra)}")
    foreign = STORAGE_PREFIX if is_iceberg else CATALOG_PREFIX
    wrong = [name for name in config if name.startswith(foreign)]
    if wrong:
        raise ValueError(f"{wrong[0]} has no effect on a table in {values['format'].capitalize()}")
    if is_iceberg:
        check_table_name(values["path"])
        check_catalog(subset(config, CATALOG_PREFIX))


def _converter(values: Mapping[str, Any], config: Mapping[str, str], part: str) -> Converter:
    name, options = values[f"{part}.converter"], subset(config, f"{part}.converter.")
    full = class_of(name)
    if full not in FORMATS:
        return converter_of(name, options)
    package = _PACKAGES.get(FORMATS[full].schema_type)
    if package is not None and not _is_installed(package):
        raise ValueError(f"{name} needs a package: {install_hint('formats')}")
    return RegistryFields(registry_of(full, options))


def _is_installed(package: str) -> bool:
    try:
        return importlib.util.find_spec(package) is not None
    except ModuleNotFoundError:  # the package that it is in
        return False


def _columns(keys: tuple[str, ...], key: Converter, value: Converter, declared: Mapping[str, str]) -> dict[str, str]:
    """The columns that a table has from its beginning. Raises ValueError."""
    made: dict[str, str] = {}
    for name in keys:
        check_name(name, made)
        if has_fields(key):
            if name not in declared:
                raise ValueError(f"{name}: declare its type in `columns`, because keys are objects")
            made[name] = declared[name]
        else:
            made[name] = "string" if isinstance(key, StringConverter) else "binary"
            if declared.get(name, made[name]) != made[name]:
                raise ValueError(f"{name}: the key's converter makes it {made[name]}, not {declared[name]}")
    if len(keys) > 1 and not has_fields(key):
        raise ValueError(f"{', '.join(keys)}: several columns need a key.converter whose keys are objects")
    made.update(declared)
    if not has_fields(value):
        made[VALUE] = "string" if isinstance(value, StringConverter) else "binary"
    taken = [name for name in COORDINATES if name in made]
    if taken:
        raise ValueError(f"{taken[0]} is a column that the table fills itself")
    return {**made, **COORDINATES}


def parse_start(text: str) -> Start:
    """Where a new table begins. Raises ValueError."""
    if text in ("earliest", "latest"):
        return Start(text)
    if re.fullmatch(r"\d+:\d+(\s*,\s*\d+:\d+)*", text):
        pairs = [each.split(":") for each in text.split(",")]
        return Start("offsets", offsets={int(partition): int(offset) for partition, offset in pairs})
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f"{text!r}: earliest, latest, a time in ISO 8601 or PARTITION:OFFSET expected") from None
    return Start("time", time_ms=int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000))
