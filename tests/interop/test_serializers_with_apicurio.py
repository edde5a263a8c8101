"""Our serializers with a real schema registry: Apicurio Registry, by its interface of Confluent's Schema Registry."""

import contextlib
import json
import shutil
import socket
import subprocess
import tarfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from odradek.client import (
    AvroDeserializer,
    AvroSerializer,
    AvroValues,
    Consumer,
    JsonSchemaDeserializer,
    JsonSchemaSerializer,
    Producer,
    ProtobufDeserializer,
    ProtobufSerializer,
    RegistryError,
    RegistrySchemas,
    SchemaReference,
)
from tests.interop.client_suite import drain, run, topic_with_leaders

pytestmark = pytest.mark.long

# Later ones need Java 21.
VERSION = "3.0.9"
ARTIFACT = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
PATH = "/apis/ccompat/v7"
FIELDS = [{"name": "article", "type": "string"}, {"name": "count", "type": "long"}]
ORDER: dict[str, Any] = {"type": "record", "name": "Order", "namespace": "shop", "fields": FIELDS}


def unpacked(directory: Path) -> Path:
    """The program's jar; skips the tests where Maven Central or Java is not to be had."""
    if not shutil.which("mvn") or not shutil.which("java"):
        pytest.skip("Apicurio Registry needs Java, and mvn to fetch it")
    command = ["mvn", "-q", "-B", "dependency:get", "-Dtransitive=false", f"-Dartifact={ARTIFACT}"]
    done = subprocess.run(command, capture_output=True, text=True)
    folder = Path.home() / ".m2/repository/io/apicurio/apicurio-registry-app" / VERSION
    archive = folder / f"apicurio-registry-app-{VERSION}-all.tar.gz"
    if done.returncode or not archive.exists():
        pytest.skip(f"Apicurio Registry could not be fetched: {done.stdout.strip()[:300]}")
    with tarfile.open(archive) as file:
        file.extractall(directory, filter="data")
    return directory / f"apicurio-registry-app-{VERSION}-runner.jar"


@pytest.fixture(scope="module")
def registry_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """An Apicurio Registry that keeps its schemas in memory."""
    directory = tmp_path_factory.mktemp("apicurio")
    jar = unpacked(directory)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}{PATH}"
    options = [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"]
    log = directory / "log"
    with log.open("w") as out, subprocess.Popen(["java", *options, "-jar", jar], stdout=out, stderr=out) as process:
        try:
            deadline = time.monotonic() + 150
            while True:
                assert process.poll() is None, f"Apicurio Registry did not start: {log.read_text()[-2000:]}"
                assert time.monotonic() < deadline, f"Apicurio Registry does not answer: {log.read_text()[-2000:]}"
                with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/subjects", timeout=5):
                    break
                time.sleep(0.2)
            yield url
        finally:
            process.terminate()


@pytest.fixture
def topic(odradek_broker: Any, unique_name: Callable[[str], str]) -> tuple[str, str]:
    """(a broker's address, a topic)."""
    server = str(odradek_broker.bootstrap)
    return server, topic_with_leaders(server, unique_name("registered"))


def sent_and_read(topic: tuple[str, str], serializer: Any, deserializer: Any, *values: Any) -> list[Any]:
    server, name = topic
    found: list[Any] = []

    async def body() -> None:
        producer: Producer[Any, Any] = Producer(bootstrap_servers=server, value_serializer=serializer)
        async with producer:
            await serializer.prepare(name)
            for value in values:
                await producer.send_and_wait(name, value, partition=0)
        await deserializer.prepare(f"{name}-value")
        found.extend(each.value for each in await drain(server, name, value_deserializer=deserializer))

    run(body())
    return found


def test_avro_is_registered_and_read_by_another_process_of_schemas(registry_url: str, topic: tuple[str, str]) -> None:
    serializer: AvroSerializer[Any] = AvroSerializer(ORDER, RegistrySchemas(registry_url))
    orders = [{"article": "tea", "count": 2}, {"article": "größe", "count": 1 << 40}]
    assert sent_and_read(topic, serializer, AvroDeserializer(RegistrySchemas(registry_url)), *orders) == orders


def test_older_avro_is_read_by_a_newer_schema(registry_url: str, topic: tuple[str, str]) -> None:
    newer = {**ORDER, "fields": [*FIELDS, {"name": "note", "type": "string", "default": "-"}]}
    serializer: AvroSerializer[Any] = AvroSerializer(ORDER, RegistrySchemas(registry_url))
    deserializer = AvroDeserializer(RegistrySchemas(registry_url), newer)
    found = sent_and_read(topic, serializer, deserializer, {"article": "tea", "count": 2})
    assert found == [{"article": "tea", "count": 2, "note": "-"}]


def test_avro_columns_fetch_their_schemas(registry_url: str, topic: tuple[str, str]) -> None:
    server, name = topic
    rows = [{"article": f"tea {number}", "count": number} for number in range(20)]

    async def body() -> None:
        serializer: AvroSerializer[Any] = AvroSerializer(ORDER, RegistrySchemas(registry_url))
        await serializer.prepare(name)
        producer: Producer[Any, Any] = Producer(bootstrap_servers=server, value_serializer=serializer)
        async with producer:
            for row in rows:
                await producer.send(name, row, partition=0)
        found: list[Any] = []
        async with Consumer(name, bootstrap_servers=server, auto_offset_reset="earliest") as consumer:
            async for table in consumer.arrow(values=AvroValues(ORDER, schemas=RegistrySchemas(registry_url))):
                found += table["value"].to_pylist()
                if len(found) == len(rows):
                    break
        assert found == rows

    run(body())


def test_referenced_avro_schemas_become_one(registry_url: str, unique_name: Callable[[str], str]) -> None:
    registry = RegistrySchemas(registry_url)
    article = json.dumps({"type": "enum", "name": "Article", "namespace": "shop", "symbols": ["TEA"]})
    subject = unique_name("article")
    registry.schema_id(subject, article)
    reference = SchemaReference("shop.Article", subject, registry.version(subject, article))
    name = unique_name("articles")
    basket = {
        "type": "record",
        "name": "Basket",
        "namespace": "shop",
        "fields": [{"name": "articles", "type": {"type": "array", "items": "shop.Article"}}],
    }
    schema_id = registry.schema_id(name, json.dumps(basket), references=[reference])
    complete = json.loads(RegistrySchemas(registry_url).schema(schema_id))
    assert complete["fields"][0]["type"]["items"]["symbols"] == ["TEA"]


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_what_the_registry_lacks_is_a_lookup_error(
    registry_url: str, unique_name: Callable[[str], str], kind: Literal["AVRO", "JSON", "PROTOBUF"]
) -> None:
    registry = RegistrySchemas(registry_url, schema_type=kind)
    with pytest.raises(LookupError):
        registry.schema(999_999)
    with pytest.raises(LookupError):
        registry.load(unique_name("missing"))
    with pytest.raises(LookupError):
        registry.schema_id(unique_name("missing"), json.dumps(ORDER), register=False)


def test_incompatible_schema_is_rejected(registry_url: str, unique_name: Callable[[str], str]) -> None:
    subject, registry = unique_name("strict"), RegistrySchemas(registry_url)
    registry.schema_id(subject, json.dumps(ORDER))
    level = json.dumps({"compatibility": "BACKWARD"}).encode()
    headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
    request = urllib.request.Request(f"{registry_url}/config/{subject}", level, headers, method="PUT")
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200
    other = {**ORDER, "fields": [{"name": "added_without_default", "type": "long"}]}
    with pytest.raises(RegistryError, match="409"):
        registry.schema_id(subject, json.dumps(other))


def test_json_is_registered_and_checked(registry_url: str, topic: tuple[str, str]) -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"article": {"type": "string"}},
        "required": ["article"],
    }
    checked: list[Any] = []

    def validator(found: Any, others: Mapping[str, Any]) -> Callable[[Any], None]:
        assert (found["required"], others) == (["article"], {})
        return checked.append

    registry = RegistrySchemas(registry_url, schema_type="JSON")
    serializer: JsonSchemaSerializer[Any] = JsonSchemaSerializer(schema, registry)
    fresh = RegistrySchemas(registry_url, schema_type="JSON")
    deserializer: JsonSchemaDeserializer[Any] = JsonSchemaDeserializer(schemas=fresh, validator=validator)
    assert sent_and_read(topic, serializer, deserializer, {"article": "tea"}) == [{"article": "tea"}]
    assert checked == [{"article": "tea"}]


def message_class(name: str) -> Any:
    """A class of the messages of two files, the second of which imports the first."""
    pool = descriptor_pool.DescriptorPool()
    text = descriptor_pb2.FieldDescriptorProto.TYPE_STRING
    article = descriptor_pb2.FileDescriptorProto(name="registered/article.proto", package="registered", syntax="proto3")
    article.message_type.add(name="Article").field.add(name="name", number=1, type=text, label=1)
    order = descriptor_pb2.FileDescriptorProto(name="registered/order.proto", package="registered", syntax="proto3")
    order.dependency.append(article.name)
    fields = order.message_type.add(name="Order").field
    of_type = descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE
    fields.add(name="article", number=1, type=of_type, type_name=".registered.Article", label=1)
    fields.add(name="tags", number=2, type=text, label=3)
    for each in (article, order):
        pool.Add(each)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(name))


def test_protobuf_is_read_without_generated_code(registry_url: str, topic: tuple[str, str]) -> None:
    kind = message_class("registered.Order")
    message = kind(article={"name": "tea"}, tags=["hot", "green"])
    serializer: ProtobufSerializer[Any] = ProtobufSerializer(
        kind, RegistrySchemas(registry_url, schema_type="PROTOBUF")
    )
    deserializer = ProtobufDeserializer(RegistrySchemas(registry_url, schema_type="PROTOBUF"))
    found = sent_and_read(topic, serializer, deserializer, message)
    assert found == [{"article": {"name": "tea"}, "tags": ["hot", "green"]}]
