"""Pydantic models, and all other types that Pydantic knows, as JSON. Needs the extra `pydantic`.

Producer(value_serializer=PydanticSerializer(Order))
Consumer("orders", value_deserializer=PydanticDeserializer(Order))
"""

from __future__ import annotations

import inspect
from typing import Any, Generic

from pydantic import BaseModel, PydanticUserError, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from odradek.client.errors import ConfigError, SerializationError
from odradek.client.serializers import T_co, T_contra, describe


class PydanticSerializer(Generic[T_contra]):
    """An object of a model to a JSON object, by the names that the model's deserializer reads (aliases).

    Example:

        class Parcel(BaseModel):
            weight: int

        producer = Producer(bootstrap_servers="127.0.0.1:9092", value_serializer=PydanticSerializer(Parcel))
        async with producer:
            await producer.send_and_wait("parcels", Parcel(weight=3))
    """

    __slots__ = ("_adapter", "_exclude_none", "_model")

    def __init__(self, kind: type[T_contra], *, exclude_none: bool = False) -> None:
        """`kind` is a model or another type; `exclude_none` leaves out fields that are None.

        Raises ConfigError for a type that Pydantic has no schema for.
        """
        self._adapter = _adapter(kind)
        self._exclude_none = exclude_none
        given: Any = kind
        self._model: type[BaseModel] | None = given if inspect.isclass(given) and issubclass(given, BaseModel) else None

    def __call__(self, value: T_contra) -> bytes:
        """Encode. Raises SerializationError for an object of another model, and for fields of wrong types."""
        if self._model is not None and not isinstance(value, self._model):
            raise SerializationError(f"expected {self._model.__name__}, got {describe(value)}")
        try:
            return self._adapter.dump_json(value, by_alias=True, exclude_none=self._exclude_none, warnings="error")
        except PydanticSerializationError as error:
            raise SerializationError(f"{describe(value)}: {error}") from error


class PydanticDeserializer(Generic[T_co]):
    """JSON to an object of a model, which Pydantic validates.

    Example:

        class Parcel(BaseModel):
            weight: int

        print(PydanticDeserializer(Parcel)(b'{"weight": 3}').weight)
    """

    __slots__ = ("_adapter", "_strict")

    def __init__(self, kind: type[T_co], *, strict: bool | None = None) -> None:
        """`kind` is a model or another type; `strict` as in Pydantic: None leaves it to the model.

        Raises ConfigError for a type that Pydantic has no schema for.
        """
        self._adapter = _adapter(kind)
        self._strict = strict

    def __call__(self, data: bytes) -> T_co:
        """Decode. Raises SerializationError for anything that does not fit the model; its cause has the details."""
        try:
            built: T_co = self._adapter.validate_json(data, strict=self._strict)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
            raise SerializationError(f"{error.title}: {f'{place}: ' if place else ''}{first['msg']}{more}") from error
        return built


def _adapter(kind: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(kind)
    except PydanticUserError as error:
        raise ConfigError(f"expected a type that Pydantic knows, got {describe(kind)}: {error.message}") from error
