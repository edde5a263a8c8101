"""Schemas by id over HTTP, from a server in this process that answers as a schema registry does."""

import json
import pickle
import ssl
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from odradek.client import RegistryError, RegistrySchemas, registry
from odradek.spark.formats.avro import PERMISSIVE, is_permissive
from tests.certificates import Authority

SCHEMA = '{"type": "string"}'
NOT_FOUND = (404, json.dumps({"error_code": 40403, "message": "Schema 9 not found"}))


class Server(ThreadingHTTPServer):
    """Answers each path from `answers`, one after the other, the last one repeatedly; notes what it was asked."""

    def __init__(self, *answers: tuple[int, str]) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = list(answers)
        self.asked: list[tuple[str, str | None]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers["Authorization"]))
        status, body = self.server.answers.pop(0) if len(self.server.answers) > 1 else self.server.answers[0]
        self.send_response(status)
        if status == 302:
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server((200, json.dumps({"schema": SCHEMA})))
    thread = Thread(target=made.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "PAUSES_S", (0.0, 0.0))


def test_schema_is_fetched_once_by_its_id(server: Server) -> None:
    schemas = RegistrySchemas(server.url + "/apis/")
    assert [schemas.schema(7), schemas.schema(7)] == [SCHEMA, SCHEMA]
    assert server.asked == [("/apis/schemas/ids/7", None)]


def test_pickled_schemas_fetch_their_own(server: Server) -> None:
    schemas = RegistrySchemas(server.url)
    schemas.schema(7)
    assert pickle.loads(pickle.dumps(schemas)).schema(7) == SCHEMA
    assert len(server.asked) == 2


def test_login_is_sent_by_basic_authentication(server: Server) -> None:
    RegistrySchemas(server.url, username="user", password="secret").schema(7)
    assert server.asked == [("/schemas/ids/7", "Basic dXNlcjpzZWNyZXQ=")]


def test_unknown_id_is_a_lookup_error(server: Server) -> None:
    server.answers = [NOT_FOUND]
    with pytest.raises(LookupError, match="no schema with id 9"):
        RegistrySchemas(server.url).schema(9)


def test_schema_of_another_type_is_a_lookup_error(server: Server) -> None:
    server.answers = [(200, json.dumps({"schema": "{}", "schemaType": "JSON"}))]
    with pytest.raises(LookupError, match="of type JSON; AVRO expected"):
        RegistrySchemas(server.url).schema(7)
    assert RegistrySchemas(server.url, schema_type="JSON").schema(7) == "{}"


def test_unknown_type_of_schemas_is_rejected() -> None:
    with pytest.raises(ValueError, match="one of AVRO, JSON, PROTOBUF expected, got 'avro'"):
        RegistrySchemas("http://host:8081", schema_type="avro")


@pytest.mark.parametrize(
    ("status", "body", "text"),
    [
        (401, "", "status 401"),
        (404, "<html>", "status 404"),
        (302, "", "status 302"),
        (200, "<html>", "is not JSON"),
        (200, "[]", "has no schema"),
        (200, '{"schema": "{}", "references": [{"name": "a.B", "subject": "b"}]}', "malformed references"),
        (200, '{"schema": "{}", "references": 7}', "malformed references"),
    ],
)
def test_useless_answer_is_an_error_at_once(server: Server, status: int, body: str, text: str) -> None:
    server.answers = [(status, body)]
    with pytest.raises(RegistryError, match=text):
        RegistrySchemas(server.url).schema(7)
    assert len(server.asked) == 1


def test_answer_that_is_too_long_is_an_error(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "MAX_ANSWER_BYTES", 10)
    with pytest.raises(RegistryError, match="longer than 10 bytes"):
        RegistrySchemas(server.url).schema(7)


def test_transient_failure_is_retried(server: Server) -> None:
    server.answers = [(503, ""), (500, ""), *server.answers]
    assert RegistrySchemas(server.url).schema(7) == SCHEMA
    assert len(server.asked) == 3


def test_next_address_is_tried_when_one_is_away(server: Server) -> None:
    assert RegistrySchemas(["http://127.0.0.1:1", server.url]).schema(7) == SCHEMA


def test_outage_is_an_error_that_permissive_decoding_lets_through(server: Server) -> None:
    """`mode=PERMISSIVE` makes null of values that cannot be read; while the registry is away, that would lose them."""
    import pyarrow as pa

    from odradek.client.framing import framed
    from odradek.spark.formats.avro import _Decoder

    server.answers = [(503, "")]
    decode = _Decoder(SCHEMA, RegistrySchemas(server.url), pa.string(), permissive=is_permissive(PERMISSIVE))
    with pytest.raises(RegistryError, match="could not ask the schema registry for the schema with id 7"):
        decode(pa.array([framed(7, b"\x02a")]))
    server.answers = [(200, json.dumps({"schema": SCHEMA}))]
    assert decode(pa.array([framed(7, b"\x02a")])).to_pylist() == ["a"]


def test_https_is_trusted_by_the_given_authority_alone(server: Server, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "right")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("/CN=registry").both)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    url = f"https://127.0.0.1:{server.server_port}"
    with pytest.raises(RegistryError, match="CERTIFICATE_VERIFY_FAILED"):
        RegistrySchemas(url, authority=Authority(tmp_path / "wrong").file, password="secret", username="user").schema(7)
    assert server.asked == []
    assert RegistrySchemas(url, authority=authority.file).schema(7) == SCHEMA


@pytest.mark.parametrize("url", ["", "registry:8081", "ftp://host", "http://", "http://host/?a=b", "http://host:port"])
def test_malformed_address_is_rejected(url: str) -> None:
    with pytest.raises(ValueError, match=r"address|Port"):
        RegistrySchemas(url)


def test_login_in_an_address_is_rejected_without_showing_it() -> None:
    with pytest.raises(ValueError, match="must not have a login") as caught:
        RegistrySchemas("http://user:secret@host:8081")
    assert "secret" not in str(caught.value)


def test_half_a_login_is_rejected() -> None:
    with pytest.raises(ValueError, match="belong together"):
        RegistrySchemas("http://host:8081", username="user")
