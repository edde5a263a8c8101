"""Pydantic models as keys and values."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from pydantic import BaseModel, Field, ValidationError

from odradek.client.errors import ConfigError, SerializationError
from odradek.client.pydantic_serializers import PydanticDeserializer, PydanticSerializer


class Line(BaseModel):
    article: str
    count: int = Field(default=1, gt=0)


class Order(BaseModel):
    number: int = Field(alias="no")
    lines: list[Line]
    at: datetime
    note: str | None = None


ORDER = Order(no=7, lines=[Line(article="tea"), Line(article="cup", count=2)], at=datetime(2026, 11, 23, tzinfo=UTC))


def test_model_comes_back_with_its_aliases() -> None:
    data = PydanticSerializer(Order)(ORDER)
    assert data.startswith(b'{"no":7,"lines":[{"article":"tea","count":1}')
    assert PydanticDeserializer(Order)(data) == ORDER


def test_fields_of_none_are_left_out_on_request() -> None:
    assert b"note" in PydanticSerializer(Order)(ORDER)
    data = PydanticSerializer(Order, exclude_none=True)(ORDER)
    assert b"note" not in data
    assert PydanticDeserializer(Order)(data) == ORDER


def test_types_besides_models_are_converted() -> None:
    lines = [Line(article="tea")]
    assert PydanticDeserializer(list[Line])(PydanticSerializer(list[Line])(lines)) == lines


def test_record_that_does_not_fit_the_model_is_named() -> None:
    with pytest.raises(SerializationError, match=r"Line: count: Input should be greater than 0") as caught:
        PydanticDeserializer(Line)(b'{"article": "tea", "count": 0}')
    assert isinstance(caught.value.__cause__, ValidationError)
    with pytest.raises(SerializationError, match=r"article: Field required \(and 1 more\)"):
        PydanticDeserializer(Line)(b'{"count": "x"}')
    with pytest.raises(SerializationError, match="Line: Invalid JSON"):
        PydanticDeserializer(Line)(b"{")


def test_strict_deserializer_rejects_text_for_numbers() -> None:
    data = b'{"article": "tea", "count": "2"}'
    assert PydanticDeserializer(Line)(data).count == 2
    with pytest.raises(SerializationError, match="count"):
        PydanticDeserializer(Line, strict=True)(data)


def test_object_of_another_type_is_rejected() -> None:
    with pytest.raises(SerializationError, match="expected Order, got Line"):
        PydanticSerializer(Order)(Line(article="tea"))  # type: ignore[arg-type]  # the mistake
    with pytest.raises(SerializationError, match="count"):
        PydanticSerializer(Line)(Line.model_construct(article="tea", count="many"))  # type: ignore[arg-type]  # as well


def test_type_without_a_schema_is_rejected() -> None:
    with pytest.raises(ConfigError, match="expected a type that Pydantic knows"):
        PydanticSerializer(object.__new__.__class__)
