"""What all message classes have in common: equality, representation, and the shape that dispatch relies on."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Protocol, Self


class Message(Protocol):
    """The top-level struct of an API's request or response, or of a data record."""

    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]

    @classmethod
    def decode(cls, view: memoryview, position: int, version: int) -> tuple[Self, int]:
        """(message, position behind it); raises DecodeError."""
        ...

    def encode(self, out: bytearray, version: int) -> None:
        """Append to `out`; raises EncodeError, after which `out` holds a part of the message."""
        ...


class ApiMessage(Message, Protocol):
    """A request or a response."""

    API_KEY: ClassVar[int]


def message_eq(self: Any, other: object) -> bool:
    """`__eq__` of every message class: same class and equal fields."""
    names: tuple[str, ...] = self.__slots__
    return type(other) is type(self) and all(getattr(self, name) == getattr(other, name) for name in names)


SECRET_FIELDS: Final = frozenset({"auth_bytes", "hmac", "salted_password"})
"""Fields of messages that must not be shown."""
SETTING_CLASSES: Final = frozenset({"AlterConfigsRequestConfig", "IncrementalAlterConfigsRequestConfig"})
"""Their values may be passwords: only who knows the definition of the name can say."""


def message_repr(self: Any) -> str:
    """`__repr__` of every message class, without secrets; long binary values are given by their size."""
    kind = self.__class__.__name__
    hidden = {*SECRET_FIELDS, "value"} if kind in SETTING_CLASSES else SECRET_FIELDS
    shown = (f"{name}={'[hidden]' if name in hidden else _shown(getattr(self, name))}" for name in self.__slots__)
    return f"{kind}({', '.join(shown)})"


def _shown(value: object) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return repr(bytes(value)) if len(value) <= 32 else f"<{len(value)} bytes>"
    return repr(value)
