"""`odradek configs`: Apache's kafka-configs (its ConfigCommand)."""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.actions.effects import warn_without_effect, without_effect
from odradek.cli.arguments.config_entities import Entity, show_altered
from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import add_admin, exactly_one, is_given, read_properties
from odradek.cli.session import run_admin
from odradek.cli.terminal.output import DOCUMENTS, Column, show, show_document

if TYPE_CHECKING:
    from odradek.client.admin import Admin, ConfigEntry, ConfigResource
    from odradek.wire.errors import KafkaError

ACTIONS: Final = ("describe", "alter")
RESOURCES: Final = ("topics", "brokers", "broker-loggers", "client-metrics", "groups")
"""Entity types that are config resources: the plural of Kafka's ConfigResource.Type."""

QUOTAS: Final = ("users", "clients", "ips")
SHORTCUTS: Final = {
    "topic": "topics", "client": "clients", "user": "users", "broker": "brokers", "broker-logger": "broker-loggers",
    "ip": "ips", "group": "groups", "client-metrics": "client-metrics",
}  # fmt: skip
DEFAULT_SHORTCUTS: Final = {
    "client-defaults": "clients", "user-defaults": "users", "broker-defaults": "brokers", "ip-defaults": "ips",
}  # fmt: skip
_WITH_DEFAULTS: Final = frozenset(DEFAULT_SHORTCUTS.values())
_DYNAMIC: Final = {
    "topics": "DYNAMIC_TOPIC_CONFIG",
    "brokers": "DYNAMIC_BROKER_CONFIG",
    "broker-loggers": "DYNAMIC_BROKER_LOGGER_CONFIG",
    "client-metrics": "DYNAMIC_CLIENT_METRICS_CONFIG",
    "groups": "DYNAMIC_GROUP_CONFIG",
}
_BETWEEN: Final = re.compile(r",(?=[^\]]*(?:\[|$))")
"""A comma that is not inside of brackets."""

COLUMNS: Final = (
    Column("TYPE", "entity_type"),
    Column("NAME", "entity_name", 15),
    Column("CONFIG", "name", 30),
    Column("VALUE", "value"),
    Column("SOURCE", "source"),
    Column("READ-ONLY", "read_only", wide=True),
    Column("SENSITIVE", "sensitive", wide=True),
)


EXAMPLES: Final = """
# show all settings of a topic
odradek configs --describe --topic greetings --all
# change settings of a topic
odradek configs --alter --topic greetings --add-config retention.ms=3600000,cleanup.policy=compact
# return to the default
odradek configs --alter --topic greetings --delete-config cleanup.policy
# show the dynamic settings of a broker
odradek configs --describe --broker 1
# limit a user to 1 MiB/s
odradek configs --alter --user alice --add-config producer_byte_rate=1048576
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options for entities, changes and output."""
    actions = parser.add_argument_group("actions (one of them)")
    actions.add_argument("--describe", action="store_true", help="show dynamic settings; with --all also the others")
    actions.add_argument("--alter", action="store_true", help="with --add-config, --add-config-file, --delete-config")
    parser.add_argument("--all", action="store_true", help="show static settings and defaults as well (--describe)")
    parser.add_argument(
        "--add-config",
        action="append",
        default=[],
        metavar="K=V,…",
        help="set these (repeatable); a value with commas is in brackets: k=[a,b]",
    )
    parser.add_argument("--add-config-file", metavar="FILE", help="set the settings of a properties file")
    parser.add_argument(
        "--delete-config",
        action="append",
        default=[],
        metavar="K,…",
        help="return these to their defaults (repeatable)",
    )
    parser.add_argument(
        "--entity-type",
        action="append",
        default=[],
        choices=(*RESOURCES, *QUOTAS),
        metavar="TYPE",
        help=", ".join((*RESOURCES, *QUOTAS)),
    )
    parser.add_argument("--entity-name", action="append", default=[], metavar="NAME", help="name of the entity")
    parser.add_argument("--entity-default", action="count", default=0, help="the default of all entities of the type")
    for option in SHORTCUTS:
        parser.add_argument(f"--{option}", metavar="NAME", help=f"--entity-type {SHORTCUTS[option]} --entity-name NAME")
    for option in DEFAULT_SHORTCUTS:
        parser.add_argument(f"--{option}", action="store_true", help=argparse.SUPPRESS)
    add_admin(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Describe or alter the configuration of the entity named; the exit code."""
    action = exactly_one(arguments, ACTIONS)
    entities = entities_of(arguments)
    new, gone = added(arguments), deleted(arguments)
    for name in gone:
        if name in new:
            raise UsageError(f"--add-config and --delete-config both name {name}")
    changes = {**new, **dict.fromkeys(gone)}
    if action == "describe" and changes:
        raise UsageError("--add-config, --add-config-file and --delete-config go with --alter only")
    if action == "alter" and arguments.all:
        raise UsageError("--all goes with --describe only")
    if action == "alter" and not changes:
        raise UsageError("--alter needs --add-config, --add-config-file or --delete-config")
    if action == "alter" and any(each.name == "" for each in entities):
        raise UsageError("--alter needs the name of the entity, or --entity-default")
    if any(each.type in QUOTAS for each in entities):
        from odradek.cli.actions import quotas

        return (
            quotas.describe(arguments, entities) if action == "describe" else quotas.alter(arguments, entities, changes)
        )
    if len(entities) != 1:
        raise UsageError("only users and clients may be given together")
    return describe(arguments, entities[0]) if action == "describe" else alter(arguments, entities[0], changes)


def entities_of(arguments: argparse.Namespace) -> list[Entity]:
    """The entities that the options name: one, or a user and a client. Raises UsageError."""
    found: list[Entity] = []
    for option, kind in SHORTCUTS.items():
        if is_given(arguments, option):
            found.append(Entity(kind, getattr(arguments, option.replace("-", "_"))))
    for option, kind in DEFAULT_SHORTCUTS.items():
        if is_given(arguments, option):
            found.append(Entity(kind, None))
    if found and (arguments.entity_type or arguments.entity_name or arguments.entity_default):
        raise UsageError("--entity-type, --entity-name and --entity-default do not go with their short forms")
    names: list[str | None] = [*arguments.entity_name, *[None] * arguments.entity_default]
    if len(names) > len(arguments.entity_type):
        raise UsageError("each --entity-name and --entity-default needs an --entity-type")
    names += [""] * (len(arguments.entity_type) - len(names))
    found += [Entity(kind, name) for kind, name in zip(arguments.entity_type, names, strict=True)]
    if not found:
        raise UsageError("which entity? --topic, --broker, --group, … or --entity-type")
    types = [each.type for each in found]
    if len(set(types)) != len(types) or (len(found) > 1 and set(types) != {"users", "clients"}):
        raise UsageError("only users and clients may be given together")
    for each in found:
        if each.name is None and each.type not in _WITH_DEFAULTS:
            raise UsageError(f"{each.type} have no defaults")
        if each.type in ("brokers", "broker-loggers") and each.name and not each.name.isdecimal():
            raise UsageError(f"{each.type} are named by their ids, not {each.name!r}")
    return found


def added(arguments: argparse.Namespace) -> dict[str, str | None]:
    """What `--add-config` and `--add-config-file` say; brackets around values are taken off. Raises UsageError."""
    found: dict[str, str | None] = {}
    if arguments.add_config_file:
        found.update(read_properties(arguments.add_config_file, "add-config-file"))
    for part in _BETWEEN.split(",".join(arguments.add_config)):
        if not part.strip():
            continue
        name, equals, value = part.partition("=")
        if not equals or not name.strip():
            raise UsageError(f"--add-config {part.strip()}: name=value expected")
        value = value.strip()
        if value.startswith("[") and value.endswith("]"):
            value = value[1:-1]
        found[name.strip()] = value
    return found


def deleted(arguments: argparse.Namespace) -> list[str]:
    """The names in --delete-config."""
    return [each.strip() for each in ",".join(arguments.delete_config).split(",") if each.strip()]


# --- describe ---


def describe(arguments: argparse.Namespace, entity: Entity) -> int:
    """Print the configuration of the entity, or of each of its type without a name; the exit code."""

    async def work(admin: Admin) -> dict[Entity, dict[str, ConfigEntry] | KafkaError]:
        entities = await named(admin, entity)
        found = await admin.describe_configs([resource_of(each) for each in entities])
        return {each: found[resource_of(each)] for each in entities if resource_of(each) in found}

    from odradek.wire.errors import KafkaError

    results = run_admin(arguments, work)
    failures = {each: error for each, error in results.items() if isinstance(error, KafkaError)}
    if len(failures) == len(results) == 1:
        error = failures[next(iter(failures))]
        raise CommandError(f"{entity}: {error}", error.code.name)
    described = {
        each: sorted(e for e in entries.values() if is_shown(each, e, arguments.all))
        for each, entries in results.items()
        if not isinstance(entries, KafkaError)
    }
    if arguments.output is None:
        for each, entries in described.items():
            print_described(each, entries, arguments.all)
    elif arguments.output in DOCUMENTS:
        show_document([document(each, entries) for each, entries in described.items()], arguments.output)
    else:
        rows = [{**entry_row(entry), **entity_row(each)} for each, entries in described.items() for entry in entries]
        show(rows, COLUMNS, arguments.output)
    for each, error in failures.items():
        print(f"odradek configs: {each}: {error}", file=sys.stderr)
    return 1 if failures else 0


async def named(admin: Admin, entity: Entity) -> list[Entity]:
    """The entity, or all of its type."""
    if entity.name != "":
        if entity.type in ("brokers", "broker-loggers") and entity.name is not None:
            # Only that broker can answer, and one that is away is asked until `--timeout`.
            live = {each.node_id for each in (await admin.describe_cluster()).brokers}
            if int(entity.name) not in live:
                raise CommandError(f"broker {entity.name} is not running", "BROKER_NOT_AVAILABLE")
        return [entity]
    if entity.type == "topics":
        return [Entity("topics", each) for each in await admin.list_topics(include_internal=True)]
    if entity.type in ("brokers", "broker-loggers"):
        ids = [str(each.node_id) for each in (await admin.describe_cluster()).brokers]
        defaults = [Entity("brokers", None)] if entity.type == "brokers" else []
        return [*(Entity(entity.type, each) for each in ids), *defaults]
    return [Entity(entity.type, each.name) for each in await admin.list_config_resources([resource_of(entity).type])]


def resource_of(entity: Entity) -> ConfigResource:
    """The entity as a resource of the admin client; its name is empty for the cluster-wide default."""
    from odradek.client.admin import ConfigResource, ConfigResourceType

    # Kafka's names are in the singular but for client metrics.
    name = entity.type if entity.type == "client-metrics" else entity.type.removesuffix("s")
    kind = name.replace("-", "_").upper()
    return ConfigResource(ConfigResourceType[kind], entity.name or "")


def is_shown(entity: Entity, entry: ConfigEntry, everything: bool) -> bool:
    """Without --all only what is set for this very entity."""
    if everything or entity.type == "broker-loggers":
        return True
    wanted = "DYNAMIC_DEFAULT_BROKER_CONFIG" if entity == Entity("brokers", None) else _DYNAMIC[entity.type]
    return entry.source == wanted


def print_described(entity: Entity, entries: list[ConfigEntry], everything: bool) -> None:
    """As Apache's tool prints it."""
    kind = "All" if everything else "Dynamic"
    if entity.name is None:
        print(f"Default configs for {entity.type} in the cluster are:")
    else:
        print(f"{kind} configs for {entity} are:")
    for each in entries:
        synonyms = ", ".join(f"{source}:{name}={_shown(value)}" for name, value, source in each.synonyms)
        sensitive = "true" if each.sensitive else "false"
        print(f"  {each.name}={_shown(each.value)} sensitive={sensitive} synonyms={{{synonyms}}}")


def _shown(value: str | None) -> str:
    return "null" if value is None else value


def entity_row(entity: Entity) -> dict[str, Any]:
    """The columns that name an entity in tables."""
    return {"entity_type": entity.type, "entity_name": "<default>" if entity.name is None else entity.name}


def entry_row(entry: ConfigEntry) -> dict[str, Any]:
    """The columns of one setting."""
    return {
        "name": entry.name,
        "value": entry.value,
        "source": entry.source,
        "read_only": entry.read_only,
        "sensitive": entry.sensitive,
    }


def document(entity: Entity, entries: list[ConfigEntry]) -> dict[str, Any]:
    """An entity and its settings with synonyms, as `-o json` prints them."""
    configs = [
        {**entry_row(e), "synonyms": [{"name": n, "value": v, "source": s} for n, v, s in e.synonyms]} for e in entries
    ]
    return {"entity_type": entity.type, "entity_name": entity.name, "configs": configs}


# --- alter ---


def alter(arguments: argparse.Namespace, entity: Entity, changes: dict[str, str | None]) -> int:
    """Set the changes, delete those whose value is None, and warn of settings without effect; the exit code."""

    async def work(admin: Admin) -> dict[str, str]:
        from odradek.client.admin import AlterConfig, AlterConfigOp, raise_first

        wanted = [
            AlterConfig(name, value, AlterConfigOp.DELETE if value is None else AlterConfigOp.SET)
            for name, value in changes.items()
        ]
        await _check_deleted(admin, entity, [name for name, value in changes.items() if value is None])
        raise_first(await admin.alter_configs({resource_of(entity): wanted}))
        return await without_effect(admin, entity.type, [name for name, value in changes.items() if value is not None])

    ineffective = run_admin(arguments, work)
    show_altered(arguments, [entity], changes)
    warn_without_effect("configs", ineffective)
    return 0


async def _check_deleted(admin: Admin, entity: Entity, names: list[str]) -> None:
    """Raise CommandError for a name that is no setting: brokers delete it with success, as Apache's do.

    The cluster-wide default of brokers describes only what is set: its names are not checked.
    """
    from odradek.client.admin import raise_first

    if not names or entity.name is None or entity.type == "broker-loggers":
        return
    resource = resource_of(entity)
    known = raise_first(await admin.describe_configs([resource]))[resource]
    unknown = [name for name in names if name not in known]
    if unknown:
        raise CommandError(f"{entity} has no setting {', '.join(unknown)}; nothing was changed", "INVALID_CONFIG")
