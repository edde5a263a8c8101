"""How a value says which schema it was written with: not at all, or in Confluent's wire format.

Where ids come from and go to is the business of whoever is asked: a `Schemas`, such as a client of a schema registry.
"""

from __future__ import annotations

from typing import Protocol

from odradek.client.framing import MAGIC, FramingError, framed, unframed

__all__ = ["MAGIC", "FixedSchemas", "FramingError", "Schemas", "framed", "unframed"]


class Schemas(Protocol):
    """Looks schemas up. It goes to executors with the query, so it has to pickle; an id's schema never changes."""

    def schema(self, schema_id: int) -> str:
        """The text of a schema. Raises LookupError."""
        ...


class FixedSchemas:
    """Schemas that are known beforehand: {id: text}."""

    __slots__ = ("_texts",)

    def __init__(self, texts: dict[int, str]) -> None:
        self._texts = texts

    def schema(self, schema_id: int) -> str:
        """The schema with that id. Raises KeyError."""
        return self._texts[schema_id]
