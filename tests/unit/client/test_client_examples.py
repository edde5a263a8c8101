"""The examples of the client reference, which are those of the docstrings, under mypy --strict and on a broker."""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import re
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from odradek.client import (
    Admin,
    AvroSerializer,
    BlockingProducer,
    Consumer,
    JsonSchemaSerializer,
    ProtobufSerializer,
    RegistrySchemas,
)
from odradek.client.reference import reference
from odradek.testing import BlockingBroker
from tests.unit.client.test_avro_serializers import Registry, server

__all__ = ["server"]

ROOT = Path(__file__).resolve().parents[3]
PRELUDE = """\
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
from pydantic import BaseModel

from odradek.client import *
from odradek.client.admin import *
from odradek.client.blocking import Blocking
from odradek.client.metrics.opentelemetry import observe_clients
from odradek.client.metrics.prometheus import prometheus_text
from odradek.client.producer.partitioners import ConsistentPartitioner, RoundRobinPartitioner
from odradek.client.tracing import TracingConsumerInterceptor, TracingProducerInterceptor, process_span
from odradek.client.type_parameters import Data
from odradek.records.headers import Headers
"""
ADDRESS, REGISTRY = "127.0.0.1:9092", "http://registry:8081"
NOT_RUN = {
    "BlockingShareConsumer", "RaftVotersAdmin", "ShareConsumer", "ShareGroupsAdmin", "StreamsGroupsAdmin", "TokensAdmin"
}  # fmt: skip
"""Examples that are type-checked alone: a broker of this project has no share or streams groups, one alone has no
voters, and tokens are for clients that have logged in."""
SAME_AS_ASYNC = "`admin.[a-z_]+` of a `BlockingAdmin`"
"""How parts of the admin client for threads are described: the asyncio class has the example."""
TOPICS = ["orders", "jobs"]
MAY_PRINT_NOTHING = ("AvroDeserializer", "RebalanceListener", "GroupsAdmin")
AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
AVRO = {"type": "record", "name": "Order", "fields": [{"name": "article", "type": "string"}]}


class Example(NamedTuple):
    """An example of the page, with the name of the class or function that it stands below."""

    name: str
    code: str

    @property
    def needs_consumer(self) -> bool:
        return "consumer." in self.code and "Consumer(" not in self.code

    @property
    def needs_admin(self) -> bool:
        return "admin." in self.code and "Admin(" not in self.code

    @property
    def has_no_end(self) -> bool:
        return bool(re.search(r"async for|for record in consumer:", self.code))

    @property
    def function(self) -> str:
        """The example as a function."""
        keyword = "async def" if re.search(r"\bawait\b|\basync (with|for)\b", self.code) else "def"
        given = "consumer: Consumer[bytes | None, bytes]" if self.needs_consumer else ""
        given = "admin: Admin" if self.needs_admin else given
        return f"{keyword} example({given}) -> None:\n{textwrap.indent(self.code, '    ')}\n"


def _examples() -> Iterator[Example]:
    name = ""
    for part in re.split(r"^(### `\w+`)$", reference(), flags=re.MULTILINE):
        if part.startswith("### `"):
            name = part[5:-1]
        for code in re.findall(r"^Example:\n\n```python\n(.*?)^```$", part, re.MULTILINE | re.DOTALL):
            yield Example(name, code)


EXAMPLES = list(_examples())


def is_called_by_programs(kind: type, section: str) -> bool:
    """Not errors, enumerations, tuples of results, and what programs implement themselves."""
    is_protocol = bool(getattr(kind, "_is_protocol", False))
    return not (issubclass(kind, Exception | Enum | tuple) or is_protocol or re.search(SAME_AS_ASYNC, section))


def test_every_class_that_programs_call_has_an_example() -> None:
    with_example = {each.name for each in EXAMPLES}
    checked = 0
    for section in re.split(r"^### (?=`\w+`$)", reference(), flags=re.MULTILINE)[1:]:
        name, home = re.findall(r"`([\w.]+)`", section)[:2]
        found = getattr(import_module(home), name) if home.startswith("odradek.") else None
        if isinstance(found, type) and is_called_by_programs(found, section):
            checked += 1
            counterpart = name.replace("Deserializer", "Serializer")
            assert {name, counterpart} & with_example, f"{name} has no example"
    assert checked > 50


def test_protocols_and_methods_of_tables_have_examples() -> None:
    assert {"RebalanceListener", "Partitioner", "OnSend"} <= {each.name for each in EXAMPLES}
    assert any("consumer.arrow(" in each.code for each in EXAMPLES)
    assert any("producer.send_table(" in each.code for each in EXAMPLES)


def test_page_has_every_example_of_the_docstrings() -> None:
    sources = [path.read_text() for path in (ROOT / "src/odradek/client").rglob("*.py")]
    assert len(EXAMPLES) == sum(text.count(" Example:\n\n") for text in sources) > 25


def test_examples_type_check(tmp_path: Path) -> None:
    for number, each in enumerate(EXAMPLES):
        (tmp_path / f"example_{number}_{each.name}.py").write_text(PRELUDE + "\n\n" + each.function)
    config = tmp_path / "mypy.ini"
    config.write_text("[mypy]\n[mypy-pyarrow.*,google.*]\nignore_missing_imports = true\n")  # they have no types
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", f"--config-file={config}"]
    command += ["--follow-imports=silent", "--cache-dir", str(ROOT / ".mypy_cache" / "user_programs"), str(tmp_path)]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env={"MYPYPATH": str(ROOT / "src"), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert (done.stdout, done.stderr) == ("", "")


class Enough(Exception):
    """A loop without an end has printed something."""


@pytest.fixture(scope="module")
def broker() -> Iterator[BlockingBroker]:
    settings = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with BlockingBroker(settings) as broker:
        broker.produce("in-json", '{"article": "tea", "count": 2}')
        yield broker


@pytest.fixture
def feeder(broker: BlockingBroker) -> Iterator[None]:
    """Writes a record every few milliseconds, for consumers that begin at the end of a topic."""
    ended = threading.Event()

    def feed() -> None:
        with BlockingProducer(bootstrap_servers=broker.bootstrap_servers) as producer:
            while not ended.wait(0.02):
                for topic in TOPICS:
                    producer.send_and_wait(topic, b"tea", key=b"anna")

    thread = threading.Thread(target=feed)
    thread.start()
    yield
    ended.set()
    thread.join()


@pytest.fixture
def registry(server: Registry, broker: BlockingBroker) -> Registry:
    """A registry with the schema of orders, of which a topic has one."""
    data = AvroSerializer(AVRO, server.client, subject=lambda _: "orders-value")("orders-in-avro", {"article": "tea"})
    broker.produce("orders-in-avro", data)
    document = JsonSchemaSerializer({}, registry_of(server, "JSON"))("orders-by-json-schema", {"article": "tea"})
    broker.produce("orders-by-json-schema", document)
    order = message_factory.GetMessageClass(descriptors().FindMessageTypeByName("shop.Tea"))
    serializer = ProtobufSerializer(order, registry_of(server, "PROTOBUF"))
    broker.produce("orders-in-protobuf", serializer("orders-in-protobuf", order(article="tea")))
    return server


def registry_of(server: Registry, schema_type: str) -> RegistrySchemas:
    return RegistrySchemas(f"http://127.0.0.1:{server.server_port}", schema_type=schema_type)


def descriptors() -> Any:
    """A pool with one message."""
    file = descriptor_pb2.FileDescriptorProto(name="tea.proto", package="shop", syntax="proto3")
    file.message_type.add(name="Tea").field.add(name="article", number=1, type=9, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


@pytest.mark.usefixtures("feeder")
@pytest.mark.parametrize(
    "example",
    [
        pytest.param(each, id=f"{number}-{each.name}")
        for number, each in enumerate(EXAMPLES)
        if each.name not in NOT_RUN
    ],
)
def test_example_runs(example: Example, broker: BlockingBroker, registry: Registry) -> None:
    url = f"http://127.0.0.1:{registry.server_port}"
    printed: list[tuple[object, ...]] = []

    def show(*values: object) -> None:
        printed.append(values)
        if example.has_no_end:
            raise Enough

    names: dict[str, Any] = {"print": show, "__builtins__": builtins}
    code = PRELUDE + example.function
    exec(code.replace(ADDRESS, broker.bootstrap_servers).replace(REGISTRY, url), names)

    async def main() -> None:
        async with asyncio.timeout(60):
            if example.needs_admin:
                async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
                    await names["example"](admin)
                return
            if not example.needs_consumer:
                await names["example"]()
                return
            servers = broker.bootstrap_servers
            async with Consumer("in-json", bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
                await names["example"](consumer)

    with contextlib.suppress(Enough):
        if example.function.startswith("async"):
            asyncio.run(main())
        else:
            names["example"]()
    assert printed or "print(" not in code or example.name in MAY_PRINT_NOTHING
