"""Schemas of Avro that use types of other schemas, made complete in themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

_NAMED: Final = ("record", "error", "enum", "fixed")


def with_named_types(schema: str, others: Mapping[str, str]) -> str:
    """A schema with the schemas of the types that it names, each in the place of its first use.

    `others` are schemas by the full name of the type that each defines. Raises ValueError for text that is not JSON.
    """
    return json.dumps(
        _Names({name: json.loads(text) for name, text in others.items()}).complete(json.loads(schema), "")
    )


class _Names:
    """The types that are not defined yet."""

    def __init__(self, others: dict[str, Any]) -> None:
        self._others = others

    def complete(self, schema: Any, namespace: str) -> Any:
        if isinstance(schema, str):
            return self._named(schema, namespace)
        if isinstance(schema, list):
            return [self.complete(each, namespace) for each in schema]
        if not isinstance(schema, dict):
            return schema
        if schema.get("type") in _NAMED:
            namespace = _namespace_of(schema, namespace)
        done = dict(schema)
        for part in ("type", "items", "values"):
            if part in done:
                done[part] = self.complete(done[part], namespace)
        if isinstance(done.get("fields"), list):
            done["fields"] = [self._field(each, namespace) for each in done["fields"]]
        return done

    def _field(self, field: Any, namespace: str) -> Any:
        if not isinstance(field, dict) or "type" not in field:
            return field
        return {**field, "type": self.complete(field["type"], namespace)}

    def _named(self, name: str, namespace: str) -> Any:
        """A name without dots means the type of the enclosing namespace."""
        full = f"{namespace}.{name}" if namespace and "." not in name else name
        if full not in self._others:
            return name
        definition = self._others.pop(full)
        if isinstance(definition, dict) and definition.get("type") in _NAMED:
            # Within another namespace, a definition without one would get that.
            definition = {**definition, "namespace": _namespace_of(definition, "")}
            if "." in str(definition.get("name", "")):
                definition["name"] = str(definition["name"]).rpartition(".")[2]
        return self.complete(definition, "")


def _namespace_of(schema: Mapping[str, Any], enclosing: str) -> str:
    name = str(schema.get("name", ""))
    if "." in name:
        return name.rpartition(".")[0]
    return str(schema.get("namespace", enclosing))
