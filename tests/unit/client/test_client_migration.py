"""docs/CLIENT_MIGRATION.md: the names on both sides exist, and no public name of the other clients is missing."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any

import aiokafka
import aiokafka.errors
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.errors
import pytest
from aiokafka.admin import AIOKafkaAdminClient

import odradek.client
from odradek.client import admin, errors
from odradek.client.config import ADMIN_DEFAULTS, CONSUMER_DEFAULTS, PRODUCER_DEFAULTS
from odradek.client.metrics import prometheus
from odradek.client.producer import partitioners
from odradek.records import errors as record_errors
from odradek.wire.errors import ErrorCode

TEXT = (Path(__file__).parents[3] / "docs" / "CLIENT_MIGRATION.md").read_text()
TABLES = re.findall(r"^### ([\w-]+): (\w+)\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL)
LIBRARIES = {"confluent-kafka": confluent_kafka, "aiokafka": aiokafka, "kafka-python": kafka}
CLASSES: dict[tuple[str, str], Any] = {
    ("confluent-kafka", "producer"): confluent_kafka.Producer,
    ("confluent-kafka", "consumer"): confluent_kafka.Consumer,
    ("confluent-kafka", "admin"): confluent_kafka.admin.AdminClient,
    ("aiokafka", "producer"): aiokafka.AIOKafkaProducer,
    ("aiokafka", "consumer"): aiokafka.AIOKafkaConsumer,
    ("aiokafka", "admin"): AIOKafkaAdminClient,
    ("kafka-python", "producer"): kafka.KafkaProducer,
    ("kafka-python", "consumer"): kafka.KafkaConsumer,
    ("kafka-python", "admin"): kafka.KafkaAdminClient,
}
OPTIONS: dict[str, set[str]] = {
    "aiokafka": {
        name
        for kind in ("producer", "consumer", "admin")
        for name in inspect.signature(CLASSES["aiokafka", kind]).parameters
        if name != "topics"
    },
    "kafka-python": {
        name for kind in ("producer", "consumer", "admin") for name in CLASSES["kafka-python", kind].DEFAULT_CONFIG
    },
}
ARGUMENTS = {
    name
    for kind in (odradek.client.Producer, odradek.client.Consumer)
    for name, each in inspect.signature(kind.__init__).parameters.items()
    if each.kind is each.KEYWORD_ONLY
}
OWN_OPTIONS = {*PRODUCER_DEFAULTS, *CONSUMER_DEFAULTS, *ADMIN_DEFAULTS, *ARGUMENTS}
OWN_MODULES: tuple[ModuleType, ...] = (odradek.client, errors, partitioners, admin, prometheus, record_errors)


def rows(section: str) -> dict[str, list[str]]:
    """Our names by theirs."""
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    cells = [[each.strip() for each in line.strip("|").split("|")] for line in lines]
    assert all(len(each) == 3 and re.fullmatch(r"`[^`]+`", each[0]) for each in cells), "`theirs` | ours | note"
    table = {each[0].strip("`"): re.findall(r"`([^`]+)`", each[1]) for each in cells}
    assert len(table) == len(lines), "a name has two rows"
    return table


def exists(name: str) -> bool:
    """Whether a class, attribute or option of ours has the name."""
    first, _, rest = name.partition(".")
    for module in OWN_MODULES:
        found = getattr(module, first, None)
        if found is None:
            continue
        if rest and first in ("Admin", "BlockingAdmin"):
            found = found(bootstrap_servers="127.0.0.1:9092")
        try:
            attrgetter(rest)(found) if rest else None
        except AttributeError:
            return False
        return True
    return name in OWN_OPTIONS


def public(kind: type) -> Iterator[str]:
    return (name for name in dir(kind) if not name.startswith("_"))


def test_page_has_five_tables_for_each_client() -> None:
    kinds = ("producer", "consumer", "admin", "options", "errors")
    assert [(library, kind) for library, kind, _ in TABLES] == [
        (library, kind) for library in LIBRARIES for kind in kinds
    ]
    for library, module in LIBRARIES.items():
        major, minor = re.findall(r"\d+", _version(module))[:2]
        assert f"{library} ({major}.{minor})" in " ".join(TEXT.split()), "the versions of the page"


def _version(module: ModuleType) -> str:
    found = module.__version__
    return str(found)


@pytest.mark.parametrize(("library", "kind", "section"), TABLES, ids=[f"{each[0]}-{each[1]}" for each in TABLES])
def test_every_name_of_ours_exists(library: str, kind: str, section: str) -> None:
    names = [name for ours in rows(section).values() for name in ours]
    assert len(names) > 5
    assert [name for name in names if not exists(name)] == []


@pytest.mark.parametrize(("library", "kind"), list(CLASSES))
def test_every_public_name_of_the_other_class_has_a_row(library: str, kind: str) -> None:
    (section,) = [each[2] for each in TABLES if each[:2] == (library, kind)]
    assert sorted(rows(section)) == sorted(public(CLASSES[library, kind]))


@pytest.mark.parametrize("library", list(OPTIONS))
def test_every_option_is_the_same_or_has_a_row(library: str) -> None:
    (section,) = [each[2] for each in TABLES if each[:2] == (library, "options")]
    (listed,) = re.findall(r"^Same names: (.*?)\.$", section, re.MULTILINE | re.DOTALL)
    same = set(re.findall(r"`(\w+)`", listed))
    assert same <= OWN_OPTIONS
    assert not same & rows(section).keys()
    assert same | rows(section).keys() == OPTIONS[library]


def is_known(kind: Any, option: str) -> bool:
    """Whether a client of confluent-kafka accepts the option, be it with another value than the empty one."""
    try:
        kind({"group.id": "g", option: ""})
    except (confluent_kafka.KafkaException, TypeError, ValueError) as error:
        return "No such configuration property" not in str(error)
    return True


def test_options_of_librdkafka_exist() -> None:
    (section,) = [each[2] for each in TABLES if each[:2] == ("confluent-kafka", "options")]
    kinds = (confluent_kafka.Producer, confluent_kafka.Consumer)
    assert [option for option in rows(section) if not any(is_known(kind, option) for kind in kinds)] == []
    assert not any(is_known(kind, "no.such.option") for kind in kinds)


@pytest.mark.parametrize("library", ["aiokafka", "kafka-python"])
def test_every_error_has_a_row_or_the_code_of_a_broker(library: str) -> None:
    module = {"aiokafka": aiokafka.errors, "kafka-python": kafka.errors}[library]
    (section,) = [each[2] for each in TABLES if each[:2] == (library, "errors")]
    own = set()
    for name, kind in vars(module).items():
        if inspect.isclass(kind) and issubclass(kind, Exception):
            number = getattr(kind, "errno", None)
            if isinstance(number, int) and number > 0:
                assert number in {each.value for each in ErrorCode}, name
            else:
                own.add(name)
    assert rows(section).keys() == own


def test_codes_of_librdkafka_exist() -> None:
    (section,) = [each[2] for each in TABLES if each[:2] == ("confluent-kafka", "errors")]
    assert [name for name in rows(section) if not isinstance(getattr(confluent_kafka.KafkaError, name), int)] == []


def test_names_in_notes_exist() -> None:
    """Notes name further methods as `Class.method`."""
    notes = re.findall(
        r"`((?:Blocking)?(?:Producer|Consumer|TransactionalProducer|Delivery|AlterConfigOp)\.\w+)`", TEXT
    )
    assert len(notes) > 100
    assert [name for name in notes if not exists(name)] == []
