"""The worker: all connectors of a process, and what the REST interface and the command line ask of them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, cast
from weakref import WeakValueDictionary

from odradek.client.admin.admin import Admin
from odradek.client.consumer.consumer import Consumer
from odradek.client.errors import ClientError
from odradek.client.producer.producer import Producer
from odradek.client.producer.transactions import TransactionalProducer
from odradek.connect import placeholders, sink_offsets, topics
from odradek.connect.config_store import ConfigStore, MemoryConfigs, TopicConfigs
from odradek.connect.connector import Connector
from odradek.connect.connector_settings import TRANSFORM_PREFIX, ErrorPolicy, subset
from odradek.connect.conversion import Conversion
from odradek.connect.errors import ConfigInvalid, Conflict, ConnectError
from odradek.connect.model import Kind, State, Target
from odradek.connect.plugins import (
    DEFAULT_CONSUMER,
    MakeQuery,
    MakeSink,
    MakeSource,
    Plugin,
    TaskPlace,
    check_config,
    consumer_options,
    find,
    group_of,
    producer_options,
    spark_options,
)
from odradek.connect.queries.query_task import QueryTask
from odradek.connect.queries.shared_session import SharedSession, SparkSettings
from odradek.connect.settings import Checked
from odradek.connect.sink_task import DeadLetterTopic, SinkTask, consume
from odradek.connect.sinks.sink import Sink
from odradek.connect.source_task import SourceTask
from odradek.connect.sources.source import StoredOffsets
from odradek.connect.transforms import transforms_of
from odradek.records.topic_partition import TopicPartition
from odradek.wire.errors import ErrorCode, KafkaError

logger = logging.getLogger(__name__)

_NAME: Final = re.compile(r"[^\x00-\x1f\x7f/]{1,200}")


Changes = list[tuple[dict[str, Any], dict[str, Any] | None]]
"""(partition, offset) pairs of the REST interface; None removes an offset."""


class NotFound(ConnectError):
    """There is no connector, task or plugin of that name."""


class AlreadyExists(ConnectError):
    """There is a connector of that name."""


class WorkerSettings(NamedTuple):
    """How a worker is started."""

    clients: Mapping[str, Any]
    """Options that producers, consumers and admins have in common."""
    offsets_topic: str = "connect-offsets"
    configs_topic: str | None = None
    """The topic of configurations; None keeps them in memory."""
    secrets: Path | None = None
    """Folder of files that placeholders may name."""
    worker_id: str = "127.0.0.1:8083"
    spark: SparkSettings = SparkSettings()
    """What queries run on."""


class _Work(NamedTuple):
    """What a task is made of: `config` as written, with secrets, and `values` as read of it."""

    connector: Connector
    plugin: Plugin
    values: Mapping[str, Any]
    config: Mapping[str, str]
    place: TaskPlace


class Worker:
    """Starts, changes and stops connectors. Its methods are called one at a time for each connector."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._store: ConfigStore = MemoryConfigs()
        self._admin = Admin(**settings.clients)
        self._spark = SharedSession(settings.spark)
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.connectors: dict[str, Connector] = {}
        """Connectors by name."""
        self.cluster_id = ""
        """Id of the Kafka cluster."""

    # --- the process ---

    async def start(self) -> None:
        """Make the topics, and start what is stored. Raises ConnectError, KafkaError, ClientError."""
        clients = self._settings.clients
        await self._admin.start()
        self.cluster_id = (await self._admin.describe_cluster()).cluster_id or ""
        await topics.create_compacted(self._admin, self._settings.offsets_topic, topics.OFFSETS_PARTITIONS)
        if self._settings.configs_topic is not None:
            await topics.create_compacted(self._admin, self._settings.configs_topic, 1)
            self._store = TopicConfigs(clients, clients, self._settings.configs_topic)
        stored = await self._store.open()
        for name, config in stored.configs.items():
            await self._put(name, config, stored.targets.get(name, Target.STARTED))

    async def start_spark(self) -> None:
        """Start the session of queries now, and not with the first of them. Raises ConnectError."""
        await self._spark.get()

    async def close(self) -> None:
        """End all tasks, and disconnect. Connectors keep their targets."""
        await asyncio.gather(*(each.stop() for each in self.connectors.values()))
        await self._spark.close()
        await self._store.close()
        await self._admin.close()

    # --- configurations ---

    def validate(self, plugin_name: str, config: Mapping[str, str]) -> tuple[Plugin, Checked]:
        """The kind of connector, and its configuration as read; errors show placeholders. Raises NotFound."""
        plugin = find(plugin_name)
        if plugin is None:
            raise NotFound(f"there is no connector class {plugin_name}")
        try:
            resolved = placeholders.resolve(config, self._settings.secrets)
        except ValueError as error:
            return plugin, Checked({}, {str(error).partition(":")[0]: [str(error)]})
        values, errors = check_config(plugin, resolved)
        for name, text in config.items():
            secret = resolved.get(name)
            if secret and secret != text:
                errors = {each: [line.replace(secret, text) for line in lines] for each, lines in errors.items()}
        return plugin, Checked(values, errors)

    async def create(self, name: str, config: Mapping[str, str], target: Target = Target.STARTED) -> Connector:
        """Create a connector. Raises ConfigInvalid, AlreadyExists, KafkaError, ClientError."""
        async with self._turn(name):
            if name in self.connectors:
                raise AlreadyExists(f"Connector {name} already exists")
            return await self._configure(name, config, target)

    async def put(self, name: str, config: Mapping[str, str]) -> tuple[Connector, bool]:
        """Create or change a connector; whether it is new. Raises as `create`."""
        async with self._turn(name):
            before = self.connectors.get(name)
            target = Target.STARTED if before is None else before.target
            return await self._configure(name, config, target), before is None

    async def delete(self, name: str) -> None:
        """Stop and remove a connector; its offsets stay. Raises NotFound, KafkaError, ClientError."""
        async with self._turn(name):
            connector = self.find(name)
            await self._store.remove(name)
            await connector.stop()
            del self.connectors[name]

    def find(self, name: str) -> Connector:
        """The connector of that name. Raises NotFound."""
        found = self.connectors.get(name)
        if found is None:
            raise NotFound(f"Connector {name} not found")
        return found

    async def _configure(self, name: str, config: Mapping[str, str], target: Target) -> Connector:
        whole = self.check(name, config)
        await self._store.set_config(name, whole, target)
        return await self._put(name, whole, target)

    def check(self, name: str, config: Mapping[str, str]) -> dict[str, str]:
        """The configuration with its name. Raises ConfigInvalid."""
        given = config.get("name", name)
        if given != name or not _NAME.fullmatch(name) or name != name.strip():
            raise ConfigInvalid({"name": [f"name={given}: {name} expected, without control characters and /"]})
        whole = {**config, "name": name}
        self.validate_own(whole)[1].valid()
        return whole

    def validate_own(self, config: Mapping[str, str]) -> tuple[Plugin, Checked]:
        """As `validate`, by the configuration's own class. Raises ConfigInvalid if it names none."""
        name = config.get("connector.class", "")
        try:
            return self.validate(name, config)
        except NotFound as error:
            raise ConfigInvalid({"connector.class": [str(error)]}) from error

    async def _put(self, name: str, config: Mapping[str, str], target: Target) -> Connector:
        before = self.connectors.get(name)
        if before is not None:
            await before.stop()
        plugin = find(config.get("connector.class", ""))
        kind = Kind.SOURCE if plugin is None else plugin.kind
        connector = Connector(name, kind, config, target, self._settings.worker_id)
        self.connectors[name] = connector
        await self._start(connector)
        return connector

    async def _start(self, connector: Connector) -> None:
        """Start the tasks of a connector, unless it is stopped."""
        if connector.target is Target.STOPPED:
            return
        try:
            plugin, checked = self.validate_own(connector.config)
            values = checked.valid()
        except ConfigInvalid as error:
            connector.failure = str(error)
            logger.error("connector %s cannot start: %s", connector.name, error)  # noqa: TRY400 - the lines say it all
            return
        if plugin.kind is Kind.SINK and not plugin.is_query:
            await self._remove_members(connector)
        connector.start(_task_count(plugin, values), self._runner(connector, plugin, values))

    async def _remove_members(self, connector: Connector) -> None:
        """Remove what a killed worker left in the group: its partitions would wait for the session's end."""
        try:
            await self._admin.groups.remove_members(group_of(connector.name), reason="the worker has started")
        except (KafkaError, ClientError) as error:
            if isinstance(error, KafkaError) and error.code is ErrorCode.GROUP_ID_NOT_FOUND:
                return
            logger.warning(
                "connector %s: could not remove former members of its group: %s; their sessions expire by themselves",
                connector.name,
                error,
            )

    def _runner(self, connector: Connector, plugin: Plugin, values: Mapping[str, Any]) -> Any:
        config = placeholders.resolve(connector.config, self._settings.secrets)

        async def run(task: int, count: int, stopping: asyncio.Event) -> None:
            work = _Work(connector, plugin, values, config, TaskPlace(connector.name, task, count))
            if plugin.is_query:
                await self._run_query(work, stopping)
            elif plugin.kind is Kind.SINK:
                await self._run_sink(work, stopping)
            else:
                await self._run_source(work, stopping)

        return run

    async def _run_query(self, work: _Work, stopping: asyncio.Event) -> None:
        connector, plugin, values, config, place = work
        clients = self._settings.clients
        plan = cast(MakeQuery, plugin.make)(values, config, place)
        source = spark_options({**clients, **consumer_options(config), "group_id": group_of(connector.name)})
        sink = spark_options({**clients, **producer_options(config)})
        start = partial(plan.start, source=source, sink=sink)
        connector.topics.update(filter(None, (*values["topics"], values["topic"])))
        task = QueryTask(f"{connector.name}-{place.task}", self._spark, start, ErrorPolicy.of(values))
        await task.run(stopping)

    async def _run_sink(self, work: _Work, stopping: asyncio.Event) -> None:
        connector, plugin, values, config, place = work
        conversion = _conversion(work)
        policy = ErrorPolicy.of(values)
        sink = cast(MakeSink, plugin.make)(values, config, place)
        options = {**DEFAULT_CONSUMER, "max_poll_records": sink.batch_records, **consumer_options(config)}
        consumer: Consumer[Any, Any] = Consumer(
            **{**self._settings.clients, **options, "group_id": group_of(connector.name), "enable_auto_commit": False}
        )
        letters: Producer[Any, Any] | None = None
        dead_letters = None
        if policy.dead_letters:
            letters = Producer(**{**self._settings.clients, **producer_options(config)})
            dead_letters = DeadLetterTopic(letters, policy, connector.name, place.task)
        task = SinkTask(f"{connector.name}-{place.task}", consumer, sink, conversion, policy, dead_letters)
        task.topics = connector.topics
        pattern = values["topics.regex"]
        selection = {"pattern": pattern} if pattern else {"topics": values["topics"]}
        await consume(task, consumer, letters, selection, stopping)

    async def _run_source(self, work: _Work, stopping: asyncio.Event) -> None:
        connector, plugin, values, config, place = work
        source = cast(MakeSource, plugin.make)(values, config, place)
        transactional_id = f"connect-{connector.name}-{place.task}"
        clients = self._settings.clients
        task = SourceTask(
            connector.name,
            source,
            _conversion(work),
            ErrorPolicy.of(values),
            values["poll.interval.ms"] / 1000,
            {
                "producer": {**clients, **producer_options(config), "transactional_id": transactional_id},
                "consumer": clients,
            },
            self._settings.offsets_topic,
        )
        task.topics = connector.topics
        await task.run(stopping)

    # --- states ---

    async def set_target(self, name: str, target: Target) -> None:
        """Start, pause or stop a connector. Raises NotFound, KafkaError, ClientError."""
        async with self._turn(name):
            connector = self.find(name)
            if connector.target is target:
                return
            await self._store.set_target(name, target)
            await connector.stop()
            connector.target = target
            connector.failure = ""
            await self._start(connector)

    async def restart(self, name: str, *, include_tasks: bool = True, only_failed: bool = False) -> None:
        """Restart a connector, or only what failed of it (KIP-745). Raises NotFound, Conflict."""
        async with self._turn(name):
            connector = self.find(name)
            if (include_tasks and not only_failed) or (connector.failure and not connector.tasks):
                await self._restart_all(connector)
                return
            if connector.failure or not only_failed:
                await self._restart_own(connector)
            if include_tasks:
                for each in [task for task in connector.tasks if task.state is State.FAILED]:
                    await self._restart_task(connector, each.id)

    async def _restart_all(self, connector: Connector) -> None:
        await connector.stop()
        connector.failure = ""
        await self._start(connector)

    async def _restart_own(self, connector: Connector) -> None:
        """Restart a connector without its tasks: its configuration and the files of secrets are read again.

        As in Kafka Connect the tasks continue, also where the connector itself fails, unless their number changes.
        """
        try:
            plugin, checked = self.validate_own(connector.config)
            values = checked.valid()
        except ConfigInvalid as error:
            connector.failure = str(error)
            logger.error("connector %s cannot restart: %s; its tasks continue", connector.name, error)  # noqa: TRY400 - the lines say it all
            return
        connector.failure = ""
        if connector.tasks and len(connector.tasks) != _task_count(plugin, values):
            await self._restart_all(connector)

    async def restart_task(self, name: str, task: int) -> None:
        """Restart one task. Raises NotFound, ConfigInvalid."""
        async with self._turn(name):
            await self._restart_task(self.find(name), task)

    async def _restart_task(self, connector: Connector, task: int) -> None:
        found = next((each for each in connector.tasks if each.id == task), None)
        if found is None:
            raise NotFound(f"Task {task} of connector {connector.name} not found")
        if connector.target is not Target.STARTED:
            return  # its tasks do not run, and read the configuration when it is resumed
        # before the task is stopped: it continues where the configuration is wrong
        plugin, checked = self.validate_own(connector.config)
        run = self._runner(connector, plugin, checked.valid())
        await found.stop()
        connector.start_task(found, run)

    @contextlib.asynccontextmanager
    async def _turn(self, name: str) -> AsyncIterator[None]:
        """Changes of one connector come one after another: the lock lives as long as one of them needs it."""
        lock = self._turns.setdefault(name, asyncio.Lock())
        async with lock:
            yield

    # --- offsets (KIP-875) ---

    async def offsets(self, name: str) -> list[dict[str, Any]]:
        """Partitions with their offsets. Raises NotFound, KafkaError, ClientError."""
        connector = self.find(name)
        if connector.kind is Kind.SINK:
            found = await self._admin.groups.offsets(group_of(name))
            return [
                {
                    "partition": {"kafka_topic": each.topic, "kafka_partition": each.partition},
                    "offset": {"kafka_offset": at.offset},
                }
                for each, at in sorted(found.items())
            ]
        stored = await self._stored(name)
        return [{"partition": partition, "offset": offset} for partition, offset in stored.items()]

    async def alter_offsets(self, name: str, changes: Changes) -> None:
        """Set offsets of a stopped connector; None removes one. Raises NotFound, Conflict, ValueError, KafkaError."""
        async with self._turn(name):
            connector = self._stopped(name)
            if connector.kind is Kind.SINK:
                wanted = {_partition(partition): _offset(offset) for partition, offset in changes}
                sink, _ = self._sink_of(connector)
                await sink_offsets.move(self._admin, group_of(name), sink, wanted)
            else:
                await self._write_offsets(name, changes)

    async def reset_offsets(self, name: str) -> None:
        """Remove the offsets of a stopped connector. Raises as `alter_offsets`."""
        async with self._turn(name):
            connector = self._stopped(name)
            if connector.kind is Kind.SINK:
                sink, values = self._sink_of(connector)
                await sink_offsets.reset(self._admin, group_of(name), sink, values)
            else:
                stored = await self._stored(name)
                await self._write_offsets(name, [(partition, None) for partition, _ in stored.items()])

    def _stopped(self, name: str) -> Connector:
        """The connector of that name, whose tasks have ended. Raises NotFound, Conflict."""
        connector = self.find(name)
        if connector.target is not Target.STOPPED:
            raise Conflict("Connectors must be in the STOPPED state before their offsets can be modified")
        return connector

    async def _stored(self, name: str) -> StoredOffsets:
        return await topics.read_offsets(self._settings.clients, self._settings.offsets_topic, name)

    async def _write_offsets(self, name: str, changes: Changes) -> None:
        options = {**self._settings.clients, "transactional_id": f"connect-{name}-0"}
        async with TransactionalProducer[Any, Any](**options) as producer, producer.transaction():
            for partition, offset in changes:
                key, value = topics.offset_key(name, partition), topics.offset_value(offset)
                await producer.send(self._settings.offsets_topic, value, key)

    def _sink_of(self, connector: Connector) -> tuple[Sink, Mapping[str, Any]]:
        """A sink that is not open, and its values. Raises ConfigInvalid, Conflict for a query."""
        plugin, checked = self.validate_own(connector.config)
        if plugin.is_query:
            raise Conflict(f"the positions of {connector.name} are in its checkpoint: use another one to begin again")
        values = checked.valid()
        config = placeholders.resolve(connector.config, self._settings.secrets)
        return cast(MakeSink, plugin.make)(values, config, TaskPlace(connector.name, 0, 1)), values


def _task_count(plugin: Plugin, values: Mapping[str, Any]) -> int:
    most: int = values["tasks.max"]
    return max(1, min(most, plugin.tasks(values)))


def _conversion(work: _Work) -> Conversion:
    """The converters and transforms of a task."""
    transforms = transforms_of(work.values["transforms"], subset(work.config, TRANSFORM_PREFIX))
    return Conversion.of(work.values, work.config, transforms)


def _partition(partition: Mapping[str, Any]) -> TopicPartition:
    """A sink's partition in a request. Raises ValueError."""
    topic, number = partition.get("kafka_topic"), partition.get("kafka_partition")
    if not isinstance(topic, str) or not isinstance(number, int) or isinstance(number, bool) or number < 0:
        raise ValueError('{"kafka_topic": NAME, "kafka_partition": NUMBER} expected')
    return TopicPartition(topic, number)


def _offset(offset: Mapping[str, Any] | None) -> int | None:
    """A sink's offset in a request. Raises ValueError."""
    if offset is None:
        return None
    found = offset.get("kafka_offset")
    if not isinstance(found, int) or isinstance(found, bool) or found < 0:
        raise ValueError('{"kafka_offset": NUMBER} expected')
    return found
