"""Checkpoints in stores: who reads which, and what is said where that cannot be."""

import http.server
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.spark.checkpoint_files import ArrowFiles, CheckpointError, HadoopFiles, LocalFiles, open_files
from odradek.spark.checkpoints import query_id
from odradek.spark.options import SinkOptions
from odradek.spark.transactions import begin

OBJECTS = {"/bucket/cp/metadata": b'{"id":"q1"}'}


class ObjectStore(http.server.BaseHTTPRequestHandler):
    """The part of S3 that reading an object needs."""

    def do_HEAD(self) -> None:
        found = OBJECTS.get(self.path.split("?", 1)[0])
        self.send_response(404 if found is None else 200)
        self.send_header("Content-Length", str(len(found or b"")))
        self.send_header("Last-Modified", "Wed, 01 Jan 2025 00:00:00 GMT")
        self.end_headers()

    def do_GET(self) -> None:
        self.do_HEAD()
        self.wfile.write(OBJECTS.get(self.path.split("?", 1)[0], b""))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Nothing on standard error."""


@pytest.fixture
def object_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), ObjectStore) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        settings = {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_port}",
            "AWS_ACCESS_KEY_ID": "key",
            "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
        }
        for name, value in settings.items():
            monkeypatch.setenv(name, value)
        yield
        server.shutdown()
        thread.join()


@pytest.mark.usefixtures("object_store")
def test_checkpoint_in_an_object_store_is_read_without_a_java() -> None:
    files = open_files("s3a://bucket/cp/")
    assert query_id(files) == "q1"
    with pytest.raises(CheckpointError, match="cannot read s3a://bucket/cp/offsets/3"):
        files.read("offsets/3")


def test_driver_with_a_java_reads_remote_checkpoints_by_hadoop(tmp_path: Path) -> None:
    class Session:
        _jvm = object()

    assert isinstance(open_files("dbfs:/cp", Session()), HadoopFiles)
    assert isinstance(open_files("dbfs:/cp"), ArrowFiles)
    for location in (str(tmp_path), f"file:{tmp_path}", f"file://{tmp_path}"):
        files = open_files(location, Session())
        assert isinstance(files, LocalFiles)
        (tmp_path / "metadata").write_text('{"id": "q2"}')
        assert query_id(files) == "q2"


def test_store_of_fsspec_is_read_by_hadoops_short_name() -> None:
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe("/checkpoints/cp/metadata", b'{"id": "q3"}')
    assert query_id(open_files("memory:/checkpoints/cp")) == "q3"


def test_store_that_fsspec_cannot_open_is_an_error() -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(CheckpointError, match="dbfs:/cp: fsspec cannot open such a store here"):
        open_files("dbfs:/cp").read("metadata")


def test_store_that_python_cannot_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(CheckpointError, match=r"dbfs:/cp: .* fsspec adds others"):
        open_files("dbfs:/cp").read("metadata")


def test_sink_tries_the_checkpoint_before_a_row_is_written() -> None:
    """With sourceGroup: nothing is started or written, though no broker is there either."""
    given = {"kafka.bootstrap.servers": "127.0.0.1:1", "checkpointlocation": "dbfs:/cp", "sourcegroup": "g"}
    with pytest.raises(CheckpointError, match=r"dbfs:/cp"):
        begin(SinkOptions.parse(given, streaming=True), 1)


def test_metadata_without_an_id_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "metadata").write_text("[]")
    with pytest.raises(CheckpointError, match="names no query"):
        query_id(open_files(str(tmp_path)))
