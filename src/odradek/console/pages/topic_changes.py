"""Forms that create, grow, alter, empty and delete topics."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from odradek.client.admin import (
    AlterConfig,
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    NewTopic,
    raise_first,
)
from odradek.console.forms import FormError, confirm, field, number, see
from odradek.console.pages.topic import found_topic
from odradek.console.rendering import console_of, link
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import KafkaError


async def create(request: Request) -> Response:
    """Create a topic; empty numbers take the broker's defaults. Raises FormError, KafkaError, ClientError."""
    console = console_of(request)
    view = console.view_of(request)
    name = field(request, "topic").strip()
    if not name:
        raise FormError("A topic needs a name.")
    partitions = _or_default(field(request, "partitions", ""), "partitions")
    replicas = _or_default(field(request, "replicas", ""), "replicas")
    settings = _settings(field(request, "settings", ""))
    raise_first(await view.admin.create_topics([NewTopic(name, partitions, replicas, settings)]))
    view.forget_topics()
    console.record_change(request, "create topic", name, partitions=partitions, replicas=replicas, settings=settings)
    return see(link(f"/c/{view.name}/topics/{name}"))


async def grow(request: Request) -> Response:
    """Raise the number of partitions. Raises FormError, KafkaError, ClientError."""
    view, topic = await found_topic(request)
    confirm(request, topic.name)
    count = number(field(request, "partitions"), "partitions", least=1, most=2**31 - 1)
    raise_first(await view.admin.create_partitions({topic.name: count}))
    view.forget_topics()
    before = len(topic.partitions)
    console_of(request).record_change(request, "add partitions", topic.name, before=before, after=count)
    return see(link(f"/c/{view.name}/topics/{topic.name}"))


async def alter(request: Request) -> Response:
    """Set a setting, or return to its default. Raises FormError, KafkaError, ClientError."""
    view, topic = await found_topic(request)
    name, value = field(request, "name").strip(), field(request, "value", "")
    is_reset = field(request, "reset", "") == "yes"
    change = AlterConfig(name, None, AlterConfigOp.DELETE) if is_reset else AlterConfig(name, value)
    resource = ConfigResource(ConfigResourceType.TOPIC, topic.name)
    raise_first(await view.admin.alter_configs({resource: [change]}))
    console_of(request).record_change(
        request, "reset setting" if is_reset else "set setting", topic.name, name=name, value=change.value
    )
    return see(link(f"/c/{view.name}/topics/{topic.name}/settings"))


async def empty(request: Request) -> Response:
    """Delete all records of a topic. Raises FormError, KafkaError, ClientError."""
    view, topic = await found_topic(request)
    confirm(request, topic.name)
    everything = {TopicPartition(topic.name, each.partition): -1 for each in topic.partitions}
    results = await view.admin.delete_records(everything)
    done = sorted(place.partition for place, each in results.items() if not isinstance(each, KafkaError))
    if done:
        # Also where other partitions have failed.
        part = {} if len(done) == len(everything) else {"partitions": done}
        console_of(request).record_change(request, "delete records", topic.name, **part)
    raise_first(results)
    return see(link(f"/c/{view.name}/topics/{topic.name}"))


async def delete(request: Request) -> Response:
    """Delete a topic. Raises FormError, KafkaError, ClientError."""
    view, topic = await found_topic(request)
    confirm(request, topic.name)
    raise_first(await view.admin.delete_topics([topic.name]))
    view.forget_topics()
    console_of(request).record_change(request, "delete topic", topic.name)
    return see(link(f"/c/{view.name}/topics"))


def _or_default(text: str, name: str) -> int:
    return number(text, name, least=1, most=2**31 - 1) if text.strip() else -1


def _settings(text: str) -> dict[str, str]:
    """`name=value` lines. Raises FormError."""
    found = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise FormError(f"settings: {line!r}: NAME=VALUE expected, one on each line.")
        found[name.strip()] = value.strip()
    return found
