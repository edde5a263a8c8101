"""Schemas of Avro that use types of other schemas, made complete in themselves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

_NAMED: Final = ("record", "error", "enum", "fixed")
_UNNAMED: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string", "array", "map", *_NAMED}
)
"""What is no name of a type."""


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
        self._others: dict[str, Any] = {}
        for name, schema in others.items():
            found = self._taken_apart(schema, "")
            if found != name:
                self._others[name] = found

    def _taken_apart(self, schema: Any, namespace: str) -> Any:
        """A schema with names in the place of the types that it defines, each of which may be used first elsewhere."""
        if isinstance(schema, str):
            is_full = not namespace or "." in schema or schema in _UNNAMED
            return schema if is_full else f"{namespace}.{schema}"
        if isinstance(schema, list):
            return [self._taken_apart(each, namespace) for each in schema]
        if not isinstance(schema, dict):
            return schema
        is_named = schema.get("type") in _NAMED
        if is_named:
            namespace = _namespace_of(schema, namespace)
        done = dict(schema)
        for part in ("items", "values") if is_named else ("type", "items", "values"):
            if part in done:
                done[part] = self._taken_apart(done[part], namespace)
        if isinstance(done.get("fields"), list):
            done["fields"] = [
                {**each, "type": self._taken_apart(each["type"], namespace)}
                if isinstance(each, dict) and "type" in each
                else each
                for each in done["fields"]
            ]
        if not is_named:
            return done
        # Within another namespace, a definition without one would get that.
        name = str(done.get("name", "")).rpartition(".")[2]
        full = f"{namespace}.{name}" if namespace else name
        self._others.setdefault(full, {**done, "name": name, "namespace": namespace})
        return full

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
        return self.complete(self._others.pop(full), "")


def _namespace_of(schema: Mapping[str, Any], enclosing: str) -> str:
    name = str(schema.get("name", ""))
    if "." in name:
        return name.rpartition(".")[0]
    return str(schema.get("namespace", enclosing))
