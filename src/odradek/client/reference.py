"""The client reference, made from signatures and docstrings: `python -m odradek.client.reference > FILE`."""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from odradek.client.config import ADMIN_DEFAULTS, CONSUMER_DEFAULTS, PRODUCER_DEFAULTS, SHARE_CONSUMER_DEFAULTS
from odradek.client.metrics.names import GROUPS

FILE: Final = "docs/CLIENT_REFERENCE.md"
"""Where the page is kept."""

REGENERATE: Final = f"./dev run python -m odradek.client.reference > {FILE}"
"""The command that writes the page."""


class Chapter(NamedTuple):
    """Modules below `odradek.client` and their names that the chapter shows; none for all public ones."""

    title: str
    modules: Mapping[str, tuple[str, ...]]


CHAPTERS: Final = (
    Chapter(
        "Producer",
        {"producer/producer": ("Producer", "RecordHeaders"), "producer/accumulator": ("Delivery", "OnDelivery")},
    ),
    Chapter(
        "Consumer",
        {
            "consumer/consumer": ("Consumer", "CommitCallback"),
            "consumer/record_batches": ("RecordBatch",),
            "consumer/avro_columns": ("AvroValues",),
            "framing": ("Schemas", "ReferencedSchemas", "FixedSchemas"),
            "registry": ("RegistrySchemas", "RegistryError", "SchemaReference"),
            "group/rebalance_listener": (),
        },
    ),
    Chapter(
        "Share groups",
        {
            "share/share_consumer": ("ShareConsumer", "AcknowledgementCallback", "CommitOutcome"),
            "share/records": ("ShareRecord",),
            "share/acknowledgements": ("AcknowledgeType",),
            "share/blocking_share_consumer": ("BlockingShareConsumer",),
        },
    ),
    Chapter(
        "Transactions", {"producer/transactions": ("TransactionalProducer", "State"), "offsets": ("Member",)}
    ),
    Chapter(
        "Threads",
        {
            "blocking_clients": (),
            "consumer/blocking_consumer": ("BlockingConsumer",),
            "admin/blocking_admin": ("BlockingAdmin",),
            "admin/blocking_subjects": (),
            "blocking": ("Blocking", "shared"),
        },
    ),
    Chapter(
        "Records, partitions and offsets",
        {
            "../records/topic_partition": ("TopicPartition", "PartitionKey"),
            "model": (),
            "network/metadata": ("PartitionInfo", "TopicInfo"),
        },
    ),
    Chapter("Serializers and deserializers", {"serializers": (), "pydantic_serializers": (), "avro_serializers": (),
         "protobuf_serializers": (), "protobuf_messages": ("ProtobufMessages", "message_fields"),
         "json_schema_serializers": ()}),
    Chapter("Interceptors", {"interceptors": ()}),
    Chapter("Partitioners", {"producer/partitioners": ()}),
    Chapter("Metrics", {"metrics/metric": (), "metrics/prometheus": ("prometheus_text", "CONTENT_TYPE"),
         "metrics/opentelemetry": ("Measured", "observe_clients", "instrument_name")}),
    Chapter("Tracing", {"tracing": ()}),
    Chapter("Errors", {"errors": (), "../wire/errors": ("KafkaError",)}),
    Chapter(
        "Admin",
        {
            "admin/admin": ("Admin",),
            **dict.fromkeys(
                (
                    "admin/topics", "admin/configs", "admin/groups", "admin/replicas", "admin/log_dirs",
                    "admin/transactions", "admin/quotas", "admin/users", "admin/tokens", "admin/acls", "admin/features",
                    "admin/topology", "admin/share_groups", "admin/streams_groups", "admin/raft_voters", "admin/enums",
                ),
                (),
            ),
            "../wire/acls": (
                "AclBinding", "AclFilter", "ResourceType", "PatternType", "AclOperation", "AclPermissionType",
            ),
            "admin/requests": ("raise_first",),
        },
    ),
)  # fmt: skip
_INTERNAL: Final = frozenset({"describe", "takes_topic", "with_topic", "partition_for_key"})
"""Public in their module for other modules, not for programs."""
_EXAMPLE: Final = "Example:\n\n"
"""Precedes an indented example in a docstring."""
_SHOWN_SPECIAL: Final = ("__aiter__", "__iter__")
_HEAD: Final = f"""\
# Client reference

Every public name of the Python client. This page is generated from the code: `{REGENERATE}`.
The [client guide](CLIENT.md) explains how to use it. The most used names are also in `odradek.client`; each section
names its module. `Key` and `Value` stand for the types that serializers accept and deserializers return. Examples leave
out their imports; those with `await`, `async with` or `async for` stand in a coroutine.
"""
_OPTIONS: Final = (
    ("Options of every client", "config", "CommonOptions", ADMIN_DEFAULTS),
    ("Options of every client for TLS", "security/tls", "SecurityOptions", ADMIN_DEFAULTS),
    ("Options of producers", "config", "ProducerOptions", PRODUCER_DEFAULTS),
    ("Options of consumers", "config", "ConsumerOptions", CONSUMER_DEFAULTS),
    ("Options of share consumers", "config", "ShareConsumerOptions", SHARE_CONSUMER_DEFAULTS),
)


def reference() -> str:
    """The page as Markdown."""
    parts = [_HEAD]
    titles = [*(title for title, *_ in _OPTIONS), *(each.title for each in CHAPTERS)]
    parts.append("\n".join(f"- [{each}](#{_anchor(each)})" for each in titles))
    for title, module, name, defaults in _OPTIONS:
        parts.append(_options(title, _class_of(_parse(module), name), defaults))
    for chapter in CHAPTERS:
        parts.append(f"## {chapter.title}")
        for module, names in chapter.modules.items():
            parts += _module(module, names)
        if chapter.title == "Metrics":
            parts.append(_metric_names())
    return "\n\n".join(each.strip("\n") for each in parts) + "\n"


def _metric_names() -> str:
    lines = ["### Names of metrics", "", "| group | tags | name | meaning |", "|---|---|---|---|"]
    for group, tags, rows in GROUPS:
        for name, meaning in rows:
            lines.append(f"| `{group}` | {', '.join(f'`{each}`' for each in tags)} | `{name}` | {_cell(meaning)} |")
    return "\n".join(lines)


def _anchor(title: str) -> str:
    return title.lower().replace(",", "").replace(" ", "-")


def _parse(module: str) -> ast.Module:
    path = (Path(__file__).parent / f"{module}.py").resolve()
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def _class_of(tree: ast.Module, name: str) -> ast.ClassDef:
    return next(each for each in tree.body if isinstance(each, ast.ClassDef) and each.name == name)


def _options(title: str, options: ast.ClassDef, defaults: Mapping[str, Any]) -> str:
    lines = [f"## {title}", "", "| option | type | default | meaning |", "|---|---|---|---|"]
    for name, annotation, _, text in _fields(options):
        lines.append(f"| `{name}` | `{_cell(annotation)}` | `{defaults[name]!r}` | {_cell(text)} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _fields(kind: ast.ClassDef) -> Iterator[tuple[str, str, str, str]]:
    """(name, type, default, docstring) of a class's annotated or assigned names."""
    for index, each in enumerate(kind.body):
        following = kind.body[index + 1] if index + 1 < len(kind.body) else None
        text = ""
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            text = inspect.cleandoc(str(following.value.value))
        if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
            default = ast.unparse(each.value) if each.value is not None else ""
            yield each.target.id, ast.unparse(each.annotation), default, text
        elif isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            yield each.targets[0].id, "", ast.unparse(each.value), text


def _module(module: str, names: tuple[str, ...]) -> Iterator[str]:
    tree = _parse(module)
    home = "odradek." + (module[3:] if module.startswith("../") else f"client/{module}").replace("/", ".")
    for index, each in enumerate(tree.body):
        name = _name_of(each)
        if name is None or name.startswith("_") or (names and name not in names):
            continue
        if not names and (name in _INTERNAL or name in ("logger", "T", "K")):
            continue
        if isinstance(each, ast.ClassDef):
            yield _class(each, home)
        elif isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            if names or not module.startswith("admin/"):
                yield f"### `{name}`\n\n`{home}`\n\n{_function(each)}"
        else:
            following = tree.body[index + 1] if index + 1 < len(tree.body) else None
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                text = inspect.cleandoc(str(following.value.value))
                yield f"### `{name}`\n\n`{home}`\n\n```python\n{ast.unparse(each)}\n```\n\n{text}"


def _name_of(each: ast.stmt) -> str | None:
    if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return each.name
    if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name):
        return each.target.id
    if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
        return each.targets[0].id
    return None


def _class(kind: ast.ClassDef, home: str) -> str:
    bases = ", ".join(ast.unparse(each) for each in kind.bases)
    parts = [f"### `{kind.name}`", f"`{home}`{f', a {_plain(bases)}' if bases else ''}"]
    parts.append(_docstring(kind))
    fields = [each for each in _fields(kind) if not each[0].startswith("_")]
    if fields:
        lines = ["| field | type | default | |", "|---|---|---|---|"]
        for name, annotation, default, text in fields:
            cells = [f"`{_cell(_plain(each))}`" if each else "" for each in (annotation, default)]
            lines.append(f"| `{name}` | {cells[0]} | {cells[1]} | {_cell(text)} |")
        parts.append("\n".join(lines))
    for each in kind.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef):
            if any(ast.unparse(decorator) == "overload" for decorator in each.decorator_list):
                continue  # The implementation has the docstring.
            if each.name == "__init__":
                parts += [_function(each, kind.name), *_attributes(each)]
            elif not each.name.startswith("_") or each.name in _SHOWN_SPECIAL:
                parts.append(_function(each))
    return "\n\n".join(each for each in parts if each)


def _attributes(constructor: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Public attributes that the constructor sets and documents."""
    for each, following in zip(constructor.body, constructor.body[1:], strict=False):
        target = each.targets[0] if isinstance(each, ast.Assign) else getattr(each, "target", None)
        documented = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
        if isinstance(target, ast.Attribute) and not target.attr.startswith("_") and documented:
            assert isinstance(following, ast.Expr)
            assert isinstance(following.value, ast.Constant)
            yield f"`{target.attr}`: {inspect.cleandoc(str(following.value.value))}"


def _function(each: ast.FunctionDef | ast.AsyncFunctionDef, constructor_of: str = "") -> str:
    decorators = {ast.unparse(d) for d in each.decorator_list}
    text = _docstring(each)
    returns = _plain(ast.unparse(each.returns)) if each.returns is not None else "None"
    if "property" in decorators:
        return f"```python\n{each.name}: {returns}\n```\n\n{text}"
    keyword = "async def " if isinstance(each, ast.AsyncFunctionDef) and each.name != "__aiter__" else "def "
    parameters = _parameters(each.args)
    head = f"{constructor_of}(" if constructor_of else f"{keyword}{each.name}("
    tail = ")" if constructor_of else f") -> {returns}"
    signature = head + ", ".join(parameters) + tail
    if len(signature) > 100:
        signature = head + "\n    " + ",\n    ".join(parameters) + ",\n" + tail
    above = "".join(
        f"@{each}\n" for each in sorted(decorators & {"classmethod", "contextmanager", "asynccontextmanager"})
    )
    return f"```python\n{above}{signature}\n```\n\n{text}"


def _docstring(each: ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """The docstring, its example in a fence."""
    text, marker, rest = (ast.get_docstring(each) or "").partition(_EXAMPLE)
    if not marker:
        return text
    lines = rest.split("\n")
    end = next((index for index, line in enumerate(lines) if line and not line.startswith("    ")), len(lines))
    code = "\n".join(line[4:] for line in lines[:end]).strip("\n")
    return "\n".join((f"{text}{_EXAMPLE}```python\n{code}\n```", *lines[end:]))


def _parameters(arguments: ast.arguments) -> list[str]:
    def shown(argument: ast.arg, default: ast.expr | None) -> str:
        text = argument.arg + (f": {_plain(ast.unparse(argument.annotation))}" if argument.annotation else "")
        return text if default is None else f"{text} = {ast.unparse(default)}"

    positional = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    defaults += arguments.defaults
    found = [
        shown(each, default)
        for each, default in zip(positional, defaults, strict=True)
        if each.arg not in ("self", "cls")
    ]
    if arguments.vararg is not None:
        found.append("*" + shown(arguments.vararg, None))
    elif arguments.kwonlyargs:
        found.append("*")
    found += [shown(*each) for each in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg is not None:
        found.append("**" + shown(arguments.kwarg, None))
    return found


def _plain(text: str) -> str:
    """Type parameters by short names."""
    for long, short in (("Key_contra", "Key"), ("Key_co", "Key"), ("Value_contra", "Value"), ("Value_co", "Value")):
        text = text.replace(long, short)
    return text


if __name__ == "__main__":
    sys.stdout.write(reference())
