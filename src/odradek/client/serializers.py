"""Serializers and deserializers: functions between Python objects and the bytes of keys and values.

Any function of one argument will do (`str.encode`, `json.loads`), or one of two: the topic first. Null keys and values
pass around them. The classes here are the usual ones, by the names and with the bytes of Kafka's Java client.

    Producer(key_serializer=StringSerializer(), value_serializer=DataclassSerializer(Order))
    Consumer("orders", key_deserializer=StringDeserializer(), value_deserializer=DataclassDeserializer(Order))
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, Generic, TypeVar, get_args, get_origin, get_type_hints

from odradek.client.errors import ConfigError, SerializationError
from odradek.client.type_parameters import Data

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)
T_co = TypeVar("T_co", covariant=True)

Serializer = Callable[[T], Data | None] | Callable[[str, T], Data | None]
"""object -> bytes, or (topic, object) -> bytes; None writes a null."""
Deserializer = Callable[[bytes], T] | Callable[[str, bytes], T]
"""bytes -> object, or (topic, bytes) -> object. It may raise; the record is then returned by no poll."""

_POSITIONAL: Final = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class StringSerializer:
    """Text to bytes.

    Example:

        producer = Producer(bootstrap_servers="127.0.0.1:9092", key_serializer=StringSerializer())
        async with producer:
            await producer.send_and_wait("orders", b"tea", key="anna")
    """

    __slots__ = ("_encoding",)

    def __init__(self, encoding: str = "utf-8") -> None:
        """`encoding` as in `str.encode`."""
        self._encoding = encoding

    def __call__(self, value: str) -> bytes:
        """Encode. Raises SerializationError for an object that is not a str."""
        if not isinstance(value, str):
            raise SerializationError(f"expected str, got {describe(value)}")
        return value.encode(self._encoding)


class StringDeserializer:
    """Bytes to text.

    Example:

        consumer = Consumer("orders", bootstrap_servers="127.0.0.1:9092", value_deserializer=StringDeserializer())
        async with consumer:
            async for record in consumer:
                print(record.value.upper())
    """

    __slots__ = ("_encoding",)

    def __init__(self, encoding: str = "utf-8") -> None:
        """`encoding` as in `bytes.decode`."""
        self._encoding = encoding

    def __call__(self, data: bytes) -> str:
        """Decode. Raises UnicodeDecodeError."""
        return data.decode(self._encoding)


class _Number:
    """A big-endian number of fixed size."""

    __slots__ = ("_format", "_name")

    def __init__(self, name: str, layout: str) -> None:
        self._name = name
        self._format = struct.Struct(layout)

    def encode(self, value: Any) -> bytes:
        try:
            return self._format.pack(value)
        except struct.error as error:
            raise SerializationError(f"expected {self._name}, got {describe(value)}") from error

    def decode(self, data: bytes) -> Any:
        if len(data) != self._format.size:
            raise SerializationError(f"expected {self._format.size} bytes of {self._name}, got {len(data)}")
        return self._format.unpack(data)[0]


_INTEGER: Final = _Number("an integer of 32 bits", ">i")
_LONG: Final = _Number("an integer of 64 bits", ">q")
_DOUBLE: Final = _Number("a number", ">d")


class IntegerSerializer:
    """An int to four bytes, big-endian (Java's IntegerSerializer).

    Example:

        print(IntegerDeserializer()(IntegerSerializer()(-1)))
    """

    __slots__ = ()

    def __call__(self, value: int) -> bytes:
        """Encode. Raises SerializationError."""
        return _INTEGER.encode(value)


class IntegerDeserializer:
    """Four bytes, big-endian, to an int."""

    __slots__ = ()

    def __call__(self, data: bytes) -> int:
        """Decode. Raises SerializationError."""
        return int(_INTEGER.decode(data))


class LongSerializer:
    """An int to eight bytes, big-endian (Java's LongSerializer).

    Example:

        print(LongDeserializer()(LongSerializer()(1 << 40)))
    """

    __slots__ = ()

    def __call__(self, value: int) -> bytes:
        """Encode. Raises SerializationError."""
        return _LONG.encode(value)


class LongDeserializer:
    """Eight bytes, big-endian, to an int."""

    __slots__ = ()

    def __call__(self, data: bytes) -> int:
        """Decode. Raises SerializationError."""
        return int(_LONG.decode(data))


class DoubleSerializer:
    """A float to eight bytes, big-endian IEEE 754 (Java's DoubleSerializer).

    Example:

        print(DoubleDeserializer()(DoubleSerializer()(0.5)))
    """

    __slots__ = ()

    def __call__(self, value: float) -> bytes:
        """Encode. Raises SerializationError."""
        return _DOUBLE.encode(value)


class DoubleDeserializer:
    """Eight bytes, big-endian IEEE 754, to a float."""

    __slots__ = ()

    def __call__(self, data: bytes) -> float:
        """Decode. Raises SerializationError."""
        return float(_DOUBLE.decode(data))


class JsonSerializer:
    """Anything that JSON can carry, to UTF-8 without spaces.

    Example:

        serializer = JsonSerializer(default=str)  # dates and whatever else JSON does not know as text
        print(serializer({"article": "tea", "at": datetime(2026, 11, 23)}))
    """

    __slots__ = ("_default",)

    def __init__(self, default: Callable[[Any], Any] | None = None) -> None:
        """`default` as in `json.dumps`: called for objects that JSON does not know."""
        self._default = default

    def __call__(self, value: Any) -> bytes:
        """Encode. Raises SerializationError."""
        try:
            return json.dumps(value, default=self._default, separators=(",", ":"), ensure_ascii=False).encode()
        except (TypeError, ValueError) as error:
            raise SerializationError(f"JSON cannot carry {describe(value)}: {error}") from error


class JsonDeserializer:
    """UTF-8 JSON to dicts, lists, text and numbers.

    Example:

        print(JsonDeserializer()(b'{"article":"tea"}')["article"])
    """

    __slots__ = ()

    def __call__(self, data: bytes) -> Any:
        """Decode. Raises SerializationError."""
        try:
            return json.loads(data)
        except (ValueError, RecursionError) as error:
            raise SerializationError(f"not JSON: {error}") from error


class DataclassSerializer(Generic[T_contra]):
    """A dataclass, with dataclasses in it, to a JSON object of its fields.

    Example:

        @dataclass
        class Order:
            article: str
            count: int

        producer = Producer(bootstrap_servers="127.0.0.1:9092", value_serializer=DataclassSerializer(Order))
        async with producer:
            await producer.send_and_wait("orders", Order("tea", 2))
    """

    __slots__ = ("_json", "_kind")

    def __init__(self, kind: type[T_contra], default: Callable[[Any], Any] | None = None) -> None:
        """`kind` is the dataclass, `default` as of JsonSerializer. Raises ConfigError if `kind` is not a dataclass."""
        _expect_dataclass(kind)
        self._kind = kind
        self._json = JsonSerializer(default)

    def __call__(self, value: T_contra) -> bytes:
        """Encode. Raises SerializationError for an object of another type."""
        if not isinstance(value, self._kind):
            raise SerializationError(f"expected {self._kind.__name__}, got {describe(value)}")
        return self._json(dataclasses.asdict(value))  # type: ignore[call-overload]


class DataclassDeserializer(Generic[T_co]):
    """A JSON object to a dataclass; fields that are dataclasses, or lists or dicts of them, are built as such.

    Example:

        @dataclass
        class Order:
            article: str
            count: int

        order = DataclassDeserializer(Order)(b'{"article": "tea", "count": 2}')
        print(order.count + 1)
    """

    __slots__ = ("_kind",)

    def __init__(self, kind: type[T_co]) -> None:
        """`kind` is the dataclass. Raises ConfigError if it is not one."""
        _expect_dataclass(kind)
        self._kind = kind

    def __call__(self, data: bytes) -> T_co:
        """Decode. Raises SerializationError for anything but a JSON object with the fields of the dataclass."""
        try:
            content = json.loads(data)
        except (ValueError, RecursionError) as error:
            raise SerializationError(f"not JSON: {error}") from error
        built: T_co = _build(self._kind, content)
        return built


def describe(value: object) -> str:
    """An object for an error message: its type, and its beginning."""
    text = repr(value)
    return f"{type(value).__name__} ({text if len(text) <= 60 else text[:57] + '...'})"


def takes_topic(name: str, function: object) -> bool:
    """Whether a serializer or deserializer takes the topic before the object; `name` is its argument's.

    A function that needs one argument is called with the object alone. Raises ConfigError for what is not callable
    with one or two arguments, and for coroutine functions.
    """
    given: Any = function
    if not callable(given):
        raise ConfigError(f"{name}: expected a function, got {describe(function)}")
    if inspect.isclass(given) and given.__module__ == __name__:
        raise ConfigError(f"{name}: {given.__name__} is a class: pass an instance, {given.__name__}(...)")
    if inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(type(given).__call__):
        raise ConfigError(f"{name}: expected a plain function, got the coroutine function {function!r}")
    try:
        parameters = inspect.signature(given).parameters.values()
    except (TypeError, ValueError):
        return False  # built in, such as `str` or `int`
    needed = sum(1 for each in parameters if each.kind in _POSITIONAL and each.default is each.empty)
    accepted = sum(1 for each in parameters if each.kind in _POSITIONAL)
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        accepted = max(accepted, 2)
    if needed > 2 or not accepted:
        raise ConfigError(f"{name}: expected a function of (object) or (topic, object), got {function!r}")
    return needed == 2 or (needed == 0 and accepted >= 2)


def with_topic(name: str, function: Any) -> Callable[[str, Any], Any] | None:
    """The function as one of (topic, object); None for None. Raises ConfigError as `takes_topic`."""
    if function is None:
        return None
    if takes_topic(name, function):
        called: Callable[[str, Any], Any] = function
        return called
    return lambda _, value: function(value)


def _expect_dataclass(kind: object) -> None:
    if not (inspect.isclass(kind) and dataclasses.is_dataclass(kind)):
        raise ConfigError(f"expected a dataclass, got {describe(kind)}")


def _build(kind: Any, content: Any) -> Any:
    """`content` as an object of type `kind`, as far as dataclasses are concerned."""
    origin, arguments = get_origin(kind), get_args(kind)
    if inspect.isclass(kind) and dataclasses.is_dataclass(kind):
        if not isinstance(content, Mapping):
            raise SerializationError(f"expected the fields of {kind.__name__}, got {describe(content)}")
        hints = get_type_hints(kind)
        given = {name: _build(hints.get(name, Any), value) for name, value in content.items()}
        try:
            return kind(**given)
        except (TypeError, ValueError) as error:
            raise SerializationError(f"{kind.__name__}: {error}") from error
    if origin is list and isinstance(content, list):
        return [_build(arguments[0], each) for each in content]
    if origin is tuple and isinstance(content, list):
        kinds = [arguments[0]] * len(content) if len(arguments) == 2 and arguments[1] is ... else arguments
        return tuple(_build(each, value) for each, value in zip(kinds, content, strict=False))
    if origin is dict and isinstance(content, Mapping):
        return {name: _build(arguments[1], value) for name, value in content.items()}
    if content is not None and arguments:
        for each in arguments:
            if inspect.isclass(each) and dataclasses.is_dataclass(each) and isinstance(content, Mapping):
                return _build(each, content)
    return content
