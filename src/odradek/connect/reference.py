"""Writes docs/CONNECT_REFERENCE.md: `python -m odradek.connect.reference > docs/CONNECT_REFERENCE.md`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from odradek.connect.connector_settings import COMMON, SINK, SOURCE
from odradek.connect.converters import NAMES, SETTINGS
from odradek.connect.plugins import PLUGINS
from odradek.connect.settings import Setting
from odradek.connect.transforms import KINDS

HEAD: Final = """# Connectors: reference

This page is made by `python -m odradek.connect.reference` from the declarations of the settings. How to use connectors:
[CONNECT.md](CONNECT.md).
"""
REST: Final = (
    ("GET /", "version, id of the Kafka cluster"),
    ("GET /health", "that the worker serves (KIP-1017)"),
    ("GET /connectors", "names; `?expand=status&expand=info` adds documents"),
    ("POST /connectors", "create: `name`, `config`, `initial_state` (KIP-980)"),
    ("GET, DELETE /connectors/NAME", "show, remove; offsets stay"),
    ("GET, PUT, PATCH /connectors/NAME/config", "show, create or replace, change single settings (KIP-477)"),
    ("GET /connectors/NAME/status", "states of the connector and its tasks, with what they failed with"),
    ("PUT /connectors/NAME/pause, resume, stop", "stop ends the tasks, and allows changes of offsets (KIP-875)"),
    (
        "POST /connectors/NAME/restart",
        "reads the configuration again, and leaves tasks alone; `?includeTasks=true&onlyFailed=true` (KIP-745)",
    ),
    ("GET /connectors/NAME/tasks", "tasks with their configurations"),
    ("GET /connectors/NAME/tasks/N/status", "state of a task"),
    ("POST /connectors/NAME/tasks/N/restart", "restart a task"),
    (
        "GET /connectors/NAME/topics; PUT …/topics/reset",
        "topics that the connector has used since it started (KIP-558)",
    ),
    ("GET, PATCH, DELETE /connectors/NAME/offsets", "show; set and remove while it is stopped (KIP-875)"),
    ("GET /connector-plugins", "kinds of connectors; `?connectorsOnly=false` adds converters and transforms (KIP-769)"),
    ("GET /connector-plugins/CLASS/config", "settings of a connector, a converter or a transform (KIP-769)"),
    ("PUT /connector-plugins/CLASS/config/validate", "check a configuration, setting by setting"),
    ("GET /admin/loggers", "loggers that have a level of their own (KIP-495)"),
    (
        "GET, PUT /admin/loggers/LOGGER",
        'show; set with `{"level": "DEBUG"}` for it and the loggers below; `root` is all of Odradek (KIP-495)',
    ),
)
"""Requests, and what they do."""


def page() -> str:
    """The page."""
    parts = [HEAD, "## Kinds of connectors\n", _kinds()]
    parts += ["## Settings of all connectors\n", _settings(COMMON)]
    parts += ["## Settings of all sinks\n", _settings(SINK), "## Settings of all sources\n", _settings(SOURCE)]
    for plugin in PLUGINS:
        parts += [f"## {plugin.name}\n", f"A {plugin.kind}: {plugin.summary}.\n", _settings(plugin.settings)]
    parts += ["## Converters\n", _converters(), "## Transforms\n", _transforms(), "## REST interface\n"]
    parts.append(_table(("request", "does"), ((f"`{request}`", meaning) for request, meaning in REST)))
    return "\n".join(parts)


def _kinds() -> str:
    rows = (
        (f"`{each.name}`", each.kind, each.summary, ", ".join(f"`{name}`" for name in each.other_names))
        for each in PLUGINS
    )
    return _table(("class", "type", "copies", "other names"), rows)


def _settings(settings: Sequence[Setting]) -> str:
    def default(each: Setting) -> str:
        if each.is_required:
            return "required"
        if isinstance(each.default, bool):
            return f"`{str(each.default).lower()}`"
        return f"`{each.default}`" if each.default not in ("", []) else ""

    def meaning(each: Setting) -> str:
        choices = f" ({', '.join(f'`{choice}`' for choice in each.choices)})" if each.choices else ""
        return each.documentation.replace("|", "\\|") + choices

    rows = ((f"`{each.name}`", each.type.lower(), default(each), meaning(each)) for each in settings)
    return _table(("setting", "type", "default", "meaning"), rows)


def _converters() -> str:
    rows = (
        (
            f"`{short}`",
            f"`{full}`",
            "; ".join(
                f"`{each.name}`: {each.documentation}{' (required)' if each.is_required else ''}"
                for each in SETTINGS[full]
            ),
        )
        for short, full in NAMES.items()
    )
    return _table(("short name", "name", "settings below key.converter and value.converter"), rows)


def _transforms() -> str:
    rows = (
        (
            f"`{name}$Key`, `{name}$Value`" if kind.has_halves else f"`{name}`",
            ", ".join(f"`{each.name}`" for each in kind.settings),
        )
        for name, kind in KINDS.items()
    )
    return _table(("transforms.NAME.type", "settings below transforms.NAME"), rows)


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


if __name__ == "__main__":
    print(page(), end="")
