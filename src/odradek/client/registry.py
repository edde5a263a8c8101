"""Schemas by id, and ids of schemas, from a schema registry, by the HTTP interface of Confluent's Schema Registry."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlsplit

from odradek.client.avro_names import with_named_types

MAX_ANSWER_BYTES: Final = 8 * 1024 * 1024
"""A longer answer is an error, so that a wrong address cannot fill the memory."""
PAUSES_S: Final = (0.2, 1.0)
"""After the n-th failed round over all addresses, `RegistrySchemas` waits this long before the next round."""
_TRANSIENT: Final = frozenset({408, 429, 500, 502, 503, 504})
_UNKNOWN: Final = frozenset({40401, 40402, 40403})
"""Error codes for subjects, versions and schemas that the registry lacks; a wrong path has none of them."""
_MESSAGE_LENGTH: Final = 300
MAX_REFERENCED: Final = 1000
"""A schema that refers to more others, directly or through them, is an error."""
TYPES: Final = ("AVRO", "JSON", "PROTOBUF")
"""Types of schemas."""


class RegistryError(Exception):
    """The registry is away, rejects the client, or answers with something else than a schema."""

    def __init__(self, message: str, *, is_transient: bool = False) -> None:
        """`is_transient` says that the same may succeed later."""
        super().__init__(message)
        self.is_transient = is_transient
        """Whether the registry is away, and the same may succeed later."""


class SchemaReference(NamedTuple):
    """Another schema that a schema refers to.

    Example:

        registry = RegistrySchemas("http://registry:8081")
        article = '{"type": "enum", "name": "shop.Article", "symbols": ["TEA"]}'
        registry.schema_id("article", article)
        reference = SchemaReference("shop.Article", subject="article", version=registry.version("article", article))
        registry.schema_id("articles-value", '{"type": "array", "items": "shop.Article"}', references=[reference])
    """

    name: str
    """How the schema refers to it: a type's full name in Avro, the path of an import in Protobuf, a URI in JSON."""
    subject: str
    """The subject that has it."""
    version: int
    """Its version within the subject."""


class _Registered(NamedTuple):
    """A schema as the registry has it."""

    text: str
    references: tuple[SchemaReference, ...]


class RegistrySchemas:
    """Schemas of a registry, for serializers and deserializers of Avro, Protobuf and JSON Schema, and `AvroValues`.

    Also for `from_avro` on Spark's executors, where it pickles: a copy fetches its own. An id is fetched once by each
    process; its schema never changes. Redirects are errors, because they would carry the password to another host.

    Example:

        registry = RegistrySchemas("http://registry:8081")
        for schema_id in registry.load("orders-value"):
            print(schema_id, registry.schema(schema_id))
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        *,
        username: str | None = None,
        password: str | None = None,
        authority: str | None = None,
        schema_type: str = "AVRO",
        timeout_s: float = 10.0,
    ) -> None:
        """`urls` are addresses of one registry, tried in this order; `authority` is a PEM file of certificates.

        `username` and `password` are sent by HTTP's basic authentication. `schema_type` is AVRO, JSON or PROTOBUF; an
        id of another type counts as unknown. Raises ValueError for a malformed address, another type, or for only half
        of a login.
        """
        self._urls = tuple([urls] if isinstance(urls, str) else urls)
        if not self._urls:
            raise ValueError("the address of a schema registry is missing")
        for url in self._urls:
            _check_address(url)
        if (username is None) != (password is None):
            raise ValueError("a schema registry's username and password belong together")
        if schema_type not in TYPES:
            raise ValueError(f"schema_type: one of {', '.join(TYPES)} expected, got {schema_type!r}")
        self._login = None if username is None else f"{username}:{password}"
        self._authority = authority
        self._schema_type = schema_type
        self._timeout_s = timeout_s
        self._texts: dict[int, str] = {}
        self._schemas: dict[int, _Registered] = {}
        self._versions: dict[SchemaReference, _Registered] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_texts": {}, "_schemas": {}, "_versions": {}}

    @property
    def schema_type(self) -> str:
        """AVRO, JSON or PROTOBUF."""
        return self._schema_type

    def schema(self, schema_id: int) -> str:
        """The text of a schema; blocks while it is fetched.

        Schemas of Avro contain those that they refer to, each where it is first named; JSON Schemas and Protobuf are
        as registered, with the others in `referenced`. Protobuf is a FileDescriptorProto in base64. Raises LookupError
        for an id that the registry lacks or has as another type, RegistryError for all else.
        """
        found = self._texts.get(schema_id)
        if found is None:
            found = self._registered(schema_id).text
            if self._schema_type == "AVRO" and (others := self.referenced(schema_id)):
                try:
                    found = with_named_types(found, others)
                except ValueError as error:
                    raise RegistryError(f"schema {schema_id} or one that it refers to is not JSON") from error
            self._texts[schema_id] = found
        return found

    def referenced(self, schema_id: int) -> dict[str, str]:
        """The schemas that a schema refers to, directly and through others, by the names of the references.

        A schema comes after those that it refers to itself. Blocks while they are fetched, once each. Raises as
        `schema`.
        """
        found: dict[str, str] = {}
        begun: set[str] = set()
        rest = [(each, False) for each in reversed(self._registered(schema_id).references)]
        while rest:
            reference, is_done = rest.pop()
            if is_done:
                found[reference.name] = self._version(reference).text
            elif reference.name not in begun:
                begun.add(reference.name)
                if len(begun) > MAX_REFERENCED:
                    raise RegistryError(f"schema {schema_id} refers to more than {MAX_REFERENCED} other schemas")
                rest.append((reference, True))
                rest.extend((each, False) for each in reversed(self._version(reference).references))
        return found

    def schema_id(
        self, subject: str, schema: str, *, register: bool = True, references: Sequence[SchemaReference] = ()
    ) -> int:
        """The id of a schema in a subject; blocks while the registry is asked. Remembers nothing.

        A subject that lacks the schema gets it as its next version, unless `register` is false. `references` are the
        schemas that it refers to. Raises LookupError for a schema that the subject then lacks, RegistryError for all
        else: the registry rejects a schema that is not compatible with the subject's versions.
        """
        path = f"/subjects/{quote(subject, safe='')}{'/versions' if register else ''}"
        return self._posted(path, subject, schema, references, "id")

    def version(self, subject: str, schema: str, *, references: Sequence[SchemaReference] = ()) -> int:
        """The version that a subject has a schema as; blocks, and raises as `schema_id` without `register`."""
        return self._posted(f"/subjects/{quote(subject, safe='')}", subject, schema, references, "version")

    def load(self, subject: str) -> list[int]:
        """Fetch the schemas of all versions of a subject, so that `schema` need not; their ids. Raises as `schema`."""
        path = f"/subjects/{quote(subject, safe='')}/versions"
        versions = _parsed(self._request(f"subject {subject}", path), f"subject {subject}")
        if not isinstance(versions, list):
            raise RegistryError(f"the answer of the schema registry for subject {subject} is no list of versions")
        ids = []
        for version in versions:
            what = f"version {version} of subject {subject}"
            fields = _object(self._request(what, f"{path}/{version}{self._format}"), what)
            schema_id = _integer(fields, "id", what)
            self._schemas[schema_id] = self._read(f"schema {schema_id}", fields)
            self.schema(schema_id)
            self.referenced(schema_id)
            ids.append(schema_id)
        return ids

    @property
    def _format(self) -> str:
        """Descriptors need no parser of Protobuf's language."""
        return "?format=serialized" if self._schema_type == "PROTOBUF" else ""

    def _registered(self, schema_id: int) -> _Registered:
        found = self._schemas.get(schema_id)
        if found is None:
            what = f"schema with id {schema_id}"
            answer = self._request(what, f"/schemas/ids/{schema_id}{self._format}")
            found = self._schemas[schema_id] = self._read(f"schema {schema_id}", _object(answer, what))
        return found

    def _version(self, reference: SchemaReference) -> _Registered:
        found = self._versions.get(reference)
        if found is None:
            what = f"version {reference.version} of subject {reference.subject}"
            path = f"/subjects/{quote(reference.subject, safe='')}/versions/{reference.version}{self._format}"
            found = self._versions[reference] = self._read(what, _object(self._request(what, path), what))
        return found

    def _posted(self, path: str, subject: str, schema: str, references: Sequence[SchemaReference], wanted: str) -> int:
        document: dict[str, Any] = {"schema": schema}
        if self._schema_type != "AVRO":
            document["schemaType"] = self._schema_type
        if references:
            document["references"] = [each._asdict() for each in references]
        what = f"such schema in subject {subject}"
        return _integer(_object(self._request(what, path, json.dumps(document).encode()), what), wanted, what)

    def _read(self, what: str, fields: dict[str, Any]) -> _Registered:
        if not isinstance(fields.get("schema"), str):
            raise RegistryError(f"the answer of the schema registry for {what} has no schema")
        kind = fields.get("schemaType", "AVRO")  # the registry leaves it out for Avro
        if kind != self._schema_type:
            raise LookupError(f"{what} is of type {kind}; {self._schema_type} expected")
        try:
            references = tuple(
                SchemaReference(str(each["name"]), str(each["subject"]), int(each["version"]))
                for each in fields.get("references") or ()
            )
        except (LookupError, TypeError, ValueError) as error:
            raise RegistryError(f"the answer of the schema registry for {what} has malformed references") from error
        return _Registered(str(fields["schema"]), references)

    def _request(self, what: str, path: str, document: bytes | None = None) -> bytes:
        """The body of the answer; a document is posted. Raises LookupError, RegistryError."""
        for pause_s in (*PAUSES_S, None):
            failures = []
            for url in self._urls:
                try:
                    status, answer = self._exchange(url, path, document)
                except (OSError, http.client.HTTPException) as error:
                    failures.append(f"{url}: {error!r}")
                    continue
                if status == 200:
                    return answer
                if status == 404 and _error_of(answer)[0] in _UNKNOWN:
                    raise LookupError(f"the schema registry has no {what}")
                if status not in _TRANSIENT:
                    reason = f": {found}" if (found := _error_of(answer)[1]) else ""
                    raise RegistryError(
                        f"{url}: the schema registry answers for the {what} with status {status}{reason}"
                    )
                failures.append(f"{url}: status {status}")
            if pause_s is not None:
                time.sleep(pause_s)
        line = f"could not ask the schema registry for the {what}: {'; '.join(failures)}"
        raise RegistryError(line, is_transient=True)

    def _exchange(self, url: str, path: str, document: bytes | None) -> tuple[int, bytes]:
        """(status, body). Raises OSError, HTTPException, RegistryError for a body that is too long."""
        parts = urlsplit(url)
        host = parts.hostname or ""
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if document is not None:
            headers["Content-Type"] = "application/vnd.schemaregistry.v1+json"
        if self._login is not None:
            headers["Authorization"] = "Basic " + base64.b64encode(self._login.encode()).decode()
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self._authority)
            connection = http.client.HTTPSConnection(host, parts.port, timeout=self._timeout_s, context=context)
        else:
            connection = http.client.HTTPConnection(host, parts.port, timeout=self._timeout_s)
        try:
            method = "GET" if document is None else "POST"
            connection.request(method, parts.path.rstrip("/") + path, document, headers)
            answer = connection.getresponse()
            body = answer.read(MAX_ANSWER_BYTES + 1)
        finally:
            connection.close()
        if len(body) > MAX_ANSWER_BYTES:
            raise RegistryError(f"{url}: the answer to {path} is longer than {MAX_ANSWER_BYTES} bytes")
        return answer.status, body


def _parsed(answer: bytes, what: str) -> Any:
    try:
        return json.loads(answer)
    except ValueError as error:
        raise RegistryError(f"the answer of the schema registry for the {what} is not JSON") from error


def _object(answer: bytes, what: str) -> dict[str, Any]:
    fields = _parsed(answer, what)
    return fields if isinstance(fields, dict) else {}


def _integer(fields: dict[str, Any], name: str, what: str) -> int:
    found = fields.get(name)
    if not isinstance(found, int) or isinstance(found, bool):
        raise RegistryError(f"the answer of the schema registry for the {what} has no {name}")
    return found


def _check_address(url: str) -> None:
    """Raises ValueError, without the address if it has a password."""
    parts = urlsplit(url)
    if parts.username is not None or parts.password is not None:
        raise ValueError("a schema registry's address must not have a login: use username and password")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"{url!r} is not an address of a schema registry: http://HOST:PORT or https:// expected")
    _ = parts.port  # raises ValueError for a port that is no number


def _error_of(answer: bytes) -> tuple[int, str]:
    """(error code, message) of the registry itself; (0, "") where a wrong path or a proxy answers."""
    try:
        fields = json.loads(answer)
    except ValueError:
        return 0, ""
    if not isinstance(fields, dict) or not isinstance(fields.get("error_code"), int):
        return 0, ""
    return fields["error_code"], str(fields.get("message", ""))[:_MESSAGE_LENGTH]
