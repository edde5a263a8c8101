"""Plays a conversation with simulated brokers: requests as text, and all fields of what they are answered."""

from __future__ import annotations

import ast
import asyncio
import re
import typing
from collections.abc import Iterator
from typing import Any, Final

from odradek.client.admin import Admin
from odradek.client.errors import ClientError
from odradek.records.batch import split_batches
from odradek.records.builder import BatchFields, encode_batch
from odradek.records.record import decode_records
from odradek.sim.world.hosts import EPOCH_MS
from odradek.testing.simulation import Simulation
from odradek.wire.apis import APIS, request_class, response_class
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.primitives import ZERO_UUID
from tests.sim.scenarios.scrapes import scraped

_DAY_MS: Final = 86_400_000
_API_KEYS: Final = {api.name: key for key, api in APIS.items()}
_REQUEST: Final = re.compile(r"(?:(\d+) )?(\w+)(?: (\d+)(?:-(\d+))?)? ?(\{.*)")
_DEFAULT_CONFIG: Final = 5
_MANY_DEFAULTS: Final = 5
_NUMBERED: Final = {"member_id": "member", "leader": "member", "session_id": "session", "client_instance_id": "client"}
"""Fields whose values are random: they are numbered in the order of their appearance."""


class Conversation:
    """Plays one transcript.

    Lines that begin with `>` are what happens, continued by lines that begin with `>` and two spaces:

        > [BROKER] API [FIRST[-LAST]] {field: value, list: [{...}]}   a request in these versions, or the newest
        > NAME: API ...        the same, without waiting for the answer
        > NAME is answered | SECONDS s pass | broker N is killed | broker N stops |
        broker N starts | broker N is scraped

    Values are those of Python. `id(topic)` is a topic's id, `member(N)` and `session(N)` are what was numbered so in an
    answer, `records(value, ..., key=..., producer=(id, epoch, sequence), ...)` is a batch; `$v` in a text the version.
    """

    def __init__(self, sim: Simulation, admin: Admin) -> None:
        self._sim = sim
        self._admin = admin
        self._numbers: dict[tuple[str, Any], int] = {}
        self._topics: dict[str, bytes] = {}
        self._later: dict[str, asyncio.Task[list[str]]] = {}

    async def play(self, text: str) -> str:
        """The transcript with what is answered now."""
        out: list[str] = []
        await self._admin.list_topics()  # learns the brokers' addresses
        for lines in _steps(text):
            out += lines
            if lines[0].startswith(">"):
                command = " ".join(line[1:].strip() for line in lines)
                out += [f"    {line}" for line in await self._act(command)]
        return "\n".join(out) + "\n"

    async def _act(self, command: str) -> list[str]:
        name, colon, rest = command.partition(": ")
        if colon and name.isidentifier():
            self._later[name] = asyncio.ensure_future(self._ask(rest))
            await asyncio.sleep(0.2)
            return []
        match command.split():
            case [name, "is", "answered"]:
                return await self._later.pop(name)
            case [seconds, "s", "pass"]:
                await asyncio.sleep(float(seconds))
                return [f"{name} is answered" for name, task in self._later.items() if task.done()]
            case ["broker", number, "is", "scraped"]:
                return await scraped(f"b{number}")
            case ["broker", number, "is", "killed"]:
                self._sim.broker(int(number)).kill()
                return []
            case ["broker", number, "stops"]:
                await self._sim.broker(int(number)).stop()
                return []
            case ["broker", number, "starts"]:
                await self._sim.broker(int(number)).start()
                return []
        return await self._ask(command)

    # --- requests ---

    async def _ask(self, command: str) -> list[str]:
        found = _REQUEST.fullmatch(command)
        if found is None:
            raise ValueError(f"what is {command}?")
        node, name, first, last, fields = found.groups()
        key = _API_KEYS[name]
        newest = APIS[key].max_version
        versions = range(int(first), int(last or first) + 1) if first else range(newest, newest + 1)
        groups: list[tuple[int, int, list[str]]] = []
        for version in versions:
            answer = await self._answer(int(node or 1), key, version, ast.parse(fields, mode="eval").body)
            if groups and groups[-1][2] == answer:
                answer, begin = groups[-1][2], groups.pop()[0]
                groups.append((begin, version, answer))
            else:
                groups.append((version, version, answer))
        if not last:
            return groups[0][2]
        return [line for begin, end, answer in groups for line in (_range(begin, end), *_indented(answer))]

    async def _answer(self, node: int, key: int, version: int, fields: ast.expr) -> list[str]:
        try:
            request = await self._message(request_class(key), fields, version)
            connection = await self._admin.cluster.connections.get(node)
            answer = await connection.request(request, response_class(key), version, 120_000)
        except ClientError as error:
            return [type(error).__name__]
        except LookupError as error:
            return [str(error)]
        return self._shown(answer)

    async def _message(self, kind: type, node: ast.expr, version: int) -> Any:
        if not isinstance(node, ast.Dict):
            raise TypeError(f"{ast.unparse(node)} is not a {kind.__name__}")
        hints = typing.get_type_hints(vars(kind)["__init__"])
        given = {}
        for name, value in zip(node.keys, node.values, strict=True):
            assert isinstance(name, ast.Name)
            given[name.id] = await self._value(hints[name.id], value, version)
        return kind(**given)

    async def _value(self, hint: Any, node: ast.expr, version: int) -> Any:
        if isinstance(node, ast.Call):
            return await self._call(node, version)
        if isinstance(node, ast.List):
            (inner,) = (found for each in _alternatives(hint) for found in typing.get_args(each))
            return [await self._value(inner, each, version) for each in node.elts]
        if isinstance(node, ast.Dict):
            (kind,) = (each for each in _alternatives(hint) if each is not type(None))
            return await self._message(kind, node, version)
        value = ast.literal_eval(node)
        return value.replace("$v", str(version)) if isinstance(value, str) else value

    async def _call(self, node: ast.Call, version: int) -> Any:
        assert isinstance(node.func, ast.Name)
        arguments = [ast.literal_eval(each) for each in node.args]
        options = {each.arg: ast.literal_eval(each.value) for each in node.keywords if each.arg}
        if node.func.id == "records":
            return bytes(_records(arguments, **options))
        if node.func.id == "id":
            return await self._topic_id(arguments[0].replace("$v", str(version)))
        wanted = (node.func.id, arguments[0])
        for (kind, value), number in self._numbers.items():
            if (kind, number) == wanted:
                return value
        raise LookupError(f"no answer had {ast.unparse(node)}")

    async def _topic_id(self, name: str) -> bytes:
        if name not in self._topics:
            described: Any = (await self._admin.describe_topics([name]))[name]
            if isinstance(described, KafkaError):
                raise LookupError(f"there is no topic {name}")
            self._topics[name] = described.topic_id
        return self._topics[name]

    # --- answers ---

    def _shown(self, message: Any) -> list[str]:
        """The fields that differ from what a message has by itself, and each error code."""
        usual = type(message)()
        scalars: list[str] = []
        below: list[str] = []
        for field in message.__slots__:
            value = getattr(message, field)
            if value == getattr(usual, field) and not field.endswith("error_code"):
                continue
            if field == "configs":
                value, below = self._settings(value, below)
            if isinstance(value, list) and value and hasattr(value[0], "__slots__"):
                below += [f"{field}:", *_indented(line for each in value for line in self._shown(each))]
            elif hasattr(value, "__slots__"):
                lines = self._shown(value)
                if len(lines) == 1 and not lines[0].endswith(":"):
                    scalars.append(f"{field}=({lines[0]})")
                else:
                    below += [f"{field}:", *_indented(lines)]
            elif field == "records":
                below += ["records:", *_indented(_batches(value))]
            else:
                scalars.append(f"{field}={self._scalar(field, value)}")
        return [" ".join(scalars), *_indented(below)] if scalars else below or ["nothing"]

    def _settings(self, settings: list[Any], below: list[str]) -> tuple[list[Any], list[str]]:
        """Without those that have the default value, if there are many: they are counted."""
        chosen = [each for each in settings if each.config_source != _DEFAULT_CONFIG]
        if len(settings) - len(chosen) < _MANY_DEFAULTS:
            return settings, below
        return chosen, [*below, f"{len(settings) - len(chosen)} settings with their defaults"]

    def _scalar(self, field: str, value: Any) -> str:
        if field.endswith("error_code"):
            return ErrorCode(value).name
        if field.endswith("error_message"):
            return "..."
        if (kind := _NUMBERED.get(field)) is not None and value:
            return f"{kind}({self._numbers.setdefault((kind, value), self._next(kind))})"
        if isinstance(value, bytes) and len(value) == len(ZERO_UUID) and field.endswith("_id"):
            return self._shown_id(value)
        if isinstance(value, int) and EPOCH_MS <= value < EPOCH_MS + _DAY_MS:
            return "now"
        if isinstance(value, memoryview):
            value = bytes(value)
        return str(value) if isinstance(value, int) else repr(value)

    def _shown_id(self, value: bytes) -> str:
        if value == ZERO_UUID:
            return "0"
        for name, topic_id in self._topics.items():
            if topic_id == value:
                return f"id({name!r})"
        return f"uuid({self._numbers.setdefault(('uuid', value), self._next('uuid'))})"

    def _next(self, kind: str) -> int:
        return 1 + sum(each == kind for each, _ in self._numbers)


def settings_of(text: str) -> dict[str, str]:
    """The brokers' settings: lines `= name: value` of a transcript, `brokers` for their number."""
    return dict(line[2:].split(": ", 1) for line in text.splitlines() if line.startswith("= "))


def _steps(text: str) -> Iterator[list[str]]:
    """What happens, each with the lines that continue it, and comments; without what was answered before."""
    step: list[str] = []
    for line in text.splitlines():
        if line.startswith("    "):
            continue
        if line.startswith(">  "):
            step.append(line)
            continue
        if step:
            yield step
        step = [line]
    yield step


def _alternatives(hint: Any) -> list[Any]:
    """The types of a union, or the one type."""
    return list(typing.get_args(hint)) if type(None) in typing.get_args(hint) else [hint]


def _range(first: int, last: int) -> str:
    return f"version {first}" if first == last else f"versions {first} to {last}"


def _indented(lines: Any) -> list[str]:
    return [f"  {line}" for line in lines]


def _records(
    values: list[Any],
    *,
    key: bytes | None = None,
    producer: tuple[int, int, int] = (-1, -1, -1),
    transactional: bool = False,
    at: int = 1_000,
    codec: int = 0,
    damaged: bool = False,
) -> bytearray:
    fields = BatchFields(0, -1, *producer, is_transactional=transactional)
    rows = [(at + index, key, value, ()) for index, value in enumerate(values)]
    batch = encode_batch(rows, fields, compression=codec)
    if damaged:
        batch[-1] ^= 1
    return batch


def _batches(data: Any) -> list[str]:
    view, found = memoryview(data), []
    for position, header in split_batches(view):
        state = f"epoch={header.partition_leader_epoch} attributes={header.attributes}"
        producer = f"{header.producer_id}/{header.producer_epoch}/{header.base_sequence}"
        found.append(f"offset={header.base_offset} {state} producer={producer}")
        for record in decode_records(view, header, position):
            when = "now" if record.timestamp >= EPOCH_MS else record.timestamp
            found.append(f"  {record.offset} at {when}: {_text(record.key)} {_text(record.value)}")
    return found


def _text(value: Any) -> str:
    return "null" if value is None else repr(bytes(value))
