"""Changes of single records on their way, with the names and settings of Kafka Connect's transforms (KIP-66).

    transforms=mask,route
    transforms.mask.type=MaskField$Value
    transforms.mask.fields=card

Fields are those of JSON objects on the first level. For more than that, use a pipeline in Spark SQL.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

from odradek.connect.settings import REQUIRED, Setting, Type, check


class Changed(NamedTuple):
    """What a transform makes of a record."""

    topic: str
    key: Any
    value: Any


Transform = Callable[[str, Any, Any, int], Changed | None]
"""(topic, key, value, timestamp in ms or -1) -> the record as changed, None to drop it. Raises ValueError."""
_Change = Callable[[Any], Any]

CLASS_PREFIX: Final = "org.apache.kafka.connect.transforms."


def _object(value: Any, transform: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{transform}: a JSON object expected, got {type(value).__name__}")  # noqa: TRY004 - data
    return value


def _half(is_key: bool, change: _Change) -> Transform:
    """A transform of the key or of the value; null stays null."""

    def apply(topic: str, key: Any, value: Any, _timestamp: int) -> Changed:
        if is_key:
            return Changed(topic, None if key is None else change(key), value)
        return Changed(topic, key, None if value is None else change(value))

    return apply


def _mask_field(values: Mapping[str, Any], is_key: bool) -> Transform:
    fields, replacement = values["fields"], values["replacement"]

    def masked(value: Any) -> Any:
        if value is None:
            return None
        if not replacement:
            return type(value)()
        if type(value) not in (int, float, str):
            raise ValueError(f"MaskField: a replacement of text or numbers only, got {type(value).__name__}")
        return type(value)(replacement)

    def change(value: Any) -> Any:
        found = _object(value, "MaskField")
        return {name: masked(each) if name in fields else each for name, each in found.items()}

    return _half(is_key, change)


def _replace_field(values: Mapping[str, Any], is_key: bool) -> Transform:
    exclude, include = set(values["exclude"]), set(values["include"])
    renames = {}
    for each in values["renames"]:
        before, colon, after = each.partition(":")
        if not colon or not before or not after:
            raise ValueError(f"renames: OLD:NEW expected, got {each}")
        renames[before] = after

    def change(value: Any) -> Any:
        found = _object(value, "ReplaceField")
        return {
            renames.get(name, name): each
            for name, each in found.items()
            if name not in exclude and (not include or name in include)
        }

    return _half(is_key, change)


def _insert_field(values: Mapping[str, Any], is_key: bool) -> Transform:
    # in Kafka Connect, ! and ? behind a name say whether the schema requires the field
    topic_field, timestamp_field, static_field = (
        values[f"{each}.field"].removesuffix("!").removesuffix("?") for each in ("topic", "timestamp", "static")
    )
    static_value = values["static.value"]
    if not (topic_field or timestamp_field or static_field):
        raise ValueError("topic.field, timestamp.field or static.field is missing")

    def apply(topic: str, key: Any, value: Any, timestamp: int) -> Changed:
        part = key if is_key else value
        if part is None:
            return Changed(topic, key, value)
        found = dict(_object(part, "InsertField"))
        if topic_field:
            found[topic_field] = topic
        if timestamp_field:
            found[timestamp_field] = None if timestamp < 0 else timestamp
        if static_field:
            found[static_field] = static_value
        return Changed(topic, found, value) if is_key else Changed(topic, key, found)

    return apply


def _extract_field(values: Mapping[str, Any], is_key: bool) -> Transform:
    name = values["field"]

    def change(value: Any) -> Any:
        found = _object(value, "ExtractField")
        if name not in found:
            raise ValueError(f"ExtractField: there is no field {name}")
        return found[name]

    return _half(is_key, change)


def _hoist_field(values: Mapping[str, Any], is_key: bool) -> Transform:
    name = values["field"]

    def apply(topic: str, key: Any, value: Any, _timestamp: int) -> Changed:
        return Changed(topic, {name: key}, value) if is_key else Changed(topic, key, {name: value})

    return apply


def _value_to_key(values: Mapping[str, Any], _is_key: bool) -> Transform:
    fields = values["fields"]

    def apply(topic: str, _key: Any, value: Any, _timestamp: int) -> Changed:
        found = _object(value, "ValueToKey")
        missing = [each for each in fields if each not in found]
        if missing:
            raise ValueError(f"ValueToKey: there is no field {missing[0]}")
        return Changed(topic, {each: found[each] for each in fields}, value)

    return apply


def _regex_router(values: Mapping[str, Any], _is_key: bool) -> Transform:
    pattern = re.compile(values["regex"])

    def group(found: re.Match[str]) -> str:
        # Java's groups are $1, Python's \1; digits belong to the number as long as there is such a group
        digits = found[1]
        for end in range(len(digits), 0, -1):
            if int(digits[:end]) <= pattern.groups:
                return rf"\g<{digits[:end]}>{digits[end:]}"
        raise ValueError(f"replacement={values['replacement']}: regex has no group {digits}")

    replacement = re.sub(r"\$(\d+)", group, values["replacement"].replace("\\", "\\\\"))

    def apply(topic: str, key: Any, value: Any, _timestamp: int) -> Changed:
        found = pattern.fullmatch(topic)
        return Changed(found.expand(replacement) if found else topic, key, value)

    return apply


def _timestamp_router(values: Mapping[str, Any], _is_key: bool) -> Transform:
    layout, form = values["topic.format"], values["timestamp.format"]
    for java, python in (("yyyy", "%Y"), ("MM", "%m"), ("dd", "%d"), ("HH", "%H"), ("mm", "%M"), ("ss", "%S")):
        form = form.replace(java, python)
    if re.search(r"[A-Za-z]", re.sub(r"%[YmdHMS]", "", form)):
        raise ValueError("timestamp.format: only yyyy, MM, dd, HH, mm and ss are supported")

    def apply(topic: str, key: Any, value: Any, timestamp: int) -> Changed:
        if timestamp < 0:
            raise ValueError("TimestampRouter: the record has no timestamp")
        text = datetime.fromtimestamp(timestamp / 1000, UTC).strftime(form)
        return Changed(layout.replace("${topic}", topic).replace("${timestamp}", text), key, value)

    return apply


def _filter_tombstones(_values: Mapping[str, Any], _is_key: bool) -> Transform:
    def apply(topic: str, key: Any, value: Any, _timestamp: int) -> Changed | None:
        return None if value is None else Changed(topic, key, value)

    return apply


class _Kind(NamedTuple):
    """A transform: how it is made, its settings, and whether `$Key` and `$Value` exist of it."""

    make: Callable[[Mapping[str, Any], bool], Transform]
    settings: Sequence[Setting]
    has_halves: bool = True
    routes: bool = False
    """Whether it changes names of topics."""


_FIELD: Final = Setting("field", Type.STRING, REQUIRED, "the field's name")
_FIELDS: Final = Setting("fields", Type.LIST, REQUIRED, "names of fields")
KINDS: Final[Mapping[str, _Kind]] = {
    "MaskField": _Kind(
        _mask_field,
        (_FIELDS, Setting("replacement", Type.STRING, "", "in place of values: text, or a number in place of numbers")),
    ),
    "ReplaceField": _Kind(
        _replace_field,
        (
            Setting("exclude", Type.LIST, [], "fields to leave out"),
            Setting("include", Type.LIST, [], "fields to keep; by default all"),
            Setting("renames", Type.LIST, [], "OLD:NEW names"),
        ),
    ),
    "InsertField": _Kind(
        _insert_field,
        (
            Setting("topic.field", Type.STRING, "", "field for the topic's name"),
            Setting("timestamp.field", Type.STRING, "", "field for the record's timestamp in ms"),
            Setting("static.field", Type.STRING, "", "field for static.value"),
            Setting("static.value", Type.STRING, "", "text"),
        ),
    ),
    "ExtractField": _Kind(_extract_field, (_FIELD,)),
    "HoistField": _Kind(_hoist_field, (_FIELD,)),
    "ValueToKey": _Kind(_value_to_key, (_FIELDS,), has_halves=False),
    "RegexRouter": _Kind(
        _regex_router,
        (
            Setting("regex", Type.STRING, REQUIRED, "regular expression of the complete topic name"),
            Setting("replacement", Type.STRING, REQUIRED, "the new name, with $1 for groups"),
        ),
        has_halves=False,
        routes=True,
    ),
    "TimestampRouter": _Kind(
        _timestamp_router,
        (
            Setting("topic.format", Type.STRING, "${topic}-${timestamp}", "the new name"),
            Setting("timestamp.format", Type.STRING, "yyyyMMdd", "layout of the timestamp, in UTC"),
        ),
        has_halves=False,
        routes=True,
    ),
    "DropTombstones": _Kind(_filter_tombstones, (), has_halves=False),
}
"""Transforms by name. All but DropTombstones are Kafka Connect's."""


def class_names() -> list[str]:
    """Kafka's names of the transforms, as `transforms.NAME.type` has them."""
    return [
        f"{'' if name == 'DropTombstones' else CLASS_PREFIX}{name}{half}"
        for name, kind in KINDS.items()
        for half in (("$Key", "$Value") if kind.has_halves else ("",))
    ]


def settings_of(class_name: str) -> Sequence[Setting] | None:
    """The settings of a transform of that name; None if there is none."""
    kind = KINDS.get(class_name.removeprefix(CLASS_PREFIX).partition("$")[0])
    return None if kind is None else kind.settings


def transforms_of(names: Sequence[str], options: Mapping[str, str]) -> tuple[Transform, ...]:
    """The transforms of a configuration; `options` are its settings below `transforms.`. Raises ValueError."""
    for option in options:
        if option.split(".", 1)[0] not in names:
            raise ValueError(f"transforms.{option}: transforms does not name {option.split('.', 1)[0]}")
    return tuple(_transform(name, options) for name in names)


def can_route(names: Sequence[str], options: Mapping[str, str]) -> bool:
    """Whether transforms, given as to `transforms_of`, may change names of topics."""
    kinds = (options.get(f"{name}.type", "").removeprefix(CLASS_PREFIX) for name in names)
    return any(kind in KINDS and KINDS[kind].routes for kind in kinds)


def _transform(name: str, options: Mapping[str, str]) -> Transform:
    own = {each.removeprefix(f"{name}."): text for each, text in options.items() if each.startswith(f"{name}.")}
    given = own.pop("type", "")
    kind_name, _, half = given.removeprefix(CLASS_PREFIX).partition("$")
    kind = KINDS.get(kind_name)
    if kind is None:
        raise ValueError(f"transforms.{name}.type={given}: one of {', '.join(KINDS)} expected")
    if half not in (("Key", "Value") if kind.has_halves else ("",)):
        expected = f"{kind_name}$Key or {kind_name}$Value" if kind.has_halves else kind_name
        raise ValueError(f"transforms.{name}.type={given}: {expected} expected")
    checked = check(kind.settings, own)
    if checked.errors:
        line = next(iter(checked.errors.values()))[0]
        raise ValueError(f"transforms.{name}.{line}")
    try:
        return kind.make(checked.values, half == "Key")
    except (ValueError, re.error) as error:
        raise ValueError(f"transforms.{name}: {error}") from error
