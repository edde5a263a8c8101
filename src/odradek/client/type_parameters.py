"""Type parameters of the clients: key and value types, bytes unless a program names others.

Consumers only return keys and values, so their parameters are covariant; producers only accept them, so theirs are
contravariant. Defaults of type parameters (PEP 696) exist for type checkers only: Python 3.11 and 3.12 lack them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

Data = bytes | bytearray | memoryview
"""What a record's key or value is made of."""

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Key_co = TypeVar("Key_co", covariant=True, default=bytes | None)
    Value_co = TypeVar("Value_co", covariant=True, default=bytes)
    Key_contra = TypeVar("Key_contra", contravariant=True, default=Data | None)
    Value_contra = TypeVar("Value_contra", contravariant=True, default=Data | None)
else:
    from typing import TypeVar

    Key_co = TypeVar("Key_co", covariant=True)
    Value_co = TypeVar("Value_co", covariant=True)
    Key_contra = TypeVar("Key_contra", contravariant=True)
    Value_contra = TypeVar("Value_contra", contravariant=True)
