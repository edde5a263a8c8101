"""kcat's options, and what they mean to consume and produce."""

import argparse
import json
from collections.abc import Mapping

import pytest

from odradek.cli.commands import consume, produce
from odradek.cli.kcat import metadata_list as kcat_metadata
from odradek.cli.kcat.options import OF_LIBRDKAFKA, offset_range, separated, with_ports
from odradek.cli.kcat.record_output import json_envelope, kcat_format
from odradek.cli.main import main
from odradek.client.config import CONSUMER_DEFAULTS, PRODUCER_DEFAULTS
from odradek.client.model import CREATE_TIME, ConsumerRecord

RECORD = ConsumerRecord("t", 3, 42, 1000, CREATE_TIME, b"k", None, [("a", b"1"), ("b", None)], 7)


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[argparse.Namespace]:
    """The arguments with which a command was started."""
    seen: list[argparse.Namespace] = []

    def run(arguments: argparse.Namespace) -> int:
        seen.append(arguments)
        return 0

    monkeypatch.setattr(consume, "run", run)
    monkeypatch.setattr(produce, "run", run)

    def list_metadata(
        topic: str | None, arguments: argparse.Namespace, given: Mapping[str, str], *, as_json: bool
    ) -> int:
        arguments.given, arguments.as_json = given, as_json
        return run(arguments)

    monkeypatch.setattr(kcat_metadata, "list_metadata", list_metadata)
    return seen


def test_consume_starts_at_the_beginning(started: list[argparse.Namespace]):
    assert main(["-C", "-b", "h:1", "-t", "t"]) == 0
    (found,) = started
    assert (found.bootstrap_server, found.topic, found.offset, found.quiet) == ("h:1", "t", "beginning", True)


def test_consume_options_keep_the_meaning_of_kcat(started: list[argparse.Namespace]):
    assert main(["-b", "h", "-t", "t", "-C", "-o", "-10", "-c", "5", "-e", "-p", "2", "-K:", "-D", "\\x1e", "-q"]) == 0
    (found,) = started
    assert (found.bootstrap_server, found.offset, found.max_messages) == ("h:9092", "-10", 5)
    assert (found.exit, found.partition, found.key_delimiter, found.record_delimiter) == (True, 2, ":", "\x1e")
    assert found.output is None


def test_a_group_consumes_several_topics(started: list[argparse.Namespace]):
    assert main(["-G", "g", "a.b", "^c.*", "-b", "h:1"]) == 0
    (found,) = started
    assert (found.group, found.topic, found.include, found.offset) == ("g", None, r"a\.b|c.*", None)


def test_produce_options_keep_the_meaning_of_kcat(started: list[argparse.Namespace]):
    assert main(["-P", "-b", "h:1", "-t", "t", "-K", "=", "-k", "key", "-Z", "-z", "lz4", "-H", "a=b", "-c", "3"]) == 0
    (found,) = started
    assert (found.key_delimiter, found.default_key, found.key, found.limit) == ("=", b"key", None, 3)
    assert found.compression_codec == "lz4"
    assert found.header == ["a=b"]
    assert found.reader_property == ["ignore.error=true", "null.marker="]


def test_list_takes_settings_by_the_names_of_librdkafka(started: list[argparse.Namespace]):
    """They had no effect: the list was asked for without TLS and login."""
    words = ["-X", "security.protocol=sasl_ssl", "-X", "sasl.username=a", "-X", "ssl.ca.location=ca=1", "-J"]
    assert main(["-L", "-b", "h:1", *words]) == 0
    (found,) = started
    assert found.given == {"security.protocol": "sasl_ssl", "sasl.plain.username": "a", "ssl.cafile": "ca=1"}
    assert found.as_json


def test_settings_of_topics_and_of_librdkafka_go_to_the_consumer(started: list[argparse.Namespace]):
    words = ["-X", "topic.auto.offset.reset=earliest", "-X", "sasl.mechanisms=PLAIN", "-X", "client.id=c"]
    assert main(["-C", "-b", "h:1", "-t", "t", *words]) == 0
    (found,) = started
    assert found.command_property == ["auto.offset.reset=earliest", "sasl.mechanism=PLAIN", "client.id=c"]


def test_settings_of_librdkafka_have_counterparts_here():
    known = {each.replace("_", ".") for each in (*CONSUMER_DEFAULTS, *PRODUCER_DEFAULTS)}
    assert set(OF_LIBRDKAFKA.values()) <= known


def test_an_equals_sign_is_a_delimiter():
    assert separated(["-P", "-K=", "-X", "a=b"]) == ["-P", "-K", "=", "-X", "a=b"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ([], None),
        (["end"], "end"),
        (["-3"], "-3"),
        (["s@5"], "@5"),
        (["s@5", "e@9"], "@5:@9"),
        (["e@9"], ":@9"),
    ],
)
def test_offsets_of_kcat(given: list[str], expected: str | None):
    assert offset_range(given) == expected


def test_servers_without_a_port_have_the_default_port():
    assert with_ports("a, b:1,[::1]:5") == "a:9092,b:1,[::1]:5"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("-b h:1", "exactly one of kcat's -C, -G, -P, -L is needed"),
        ("-C -P -b h:1 -t t", "exactly one of kcat's"),
        ("-C -b h:1", "-C needs -t TOPIC"),
        ("-P -b h:1", "-P needs -t TOPIC"),
        ("-G g -b h:1", "-G GROUP needs a TOPIC"),
        ("-G g t -o end", "-o and -G exclude each other"),
        ("-C -t t -o stored", "use -G GROUP"),
        ("-C -t t -o soon", "-o soon"),
        ("-C -t t -s i", "kcat's -s is not supported"),
        ("-Q -t t:0:1", "use `odradek offsets"),
        ("-P -t t file", "redirect standard input"),
        ("-C -t t -f %z", "%z is not one of"),
        ("-C -t t -K \\q", "\\q is not one of"),
    ],
)
def test_mistakes_are_one_line_and_status_2(line: str, message: str, capsys: pytest.CaptureFixture[str]):
    assert main(line.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("odradek: ")
    assert message in captured.err
    assert captured.err.count("\n") == 1


def test_formats_of_kcat():
    form = kcat_format(r"%t [%p] %o: %k (%K) %s (%S) %T %h%%\n", b"NULL")
    assert form(RECORD) == b"t [3] 42: k (1) NULL (-1) 1000 a=1,b=NULL%\n"
    assert kcat_format("%R", b"")(RECORD) == b"\xff\xff\xff\xff"


def test_json_has_the_form_of_kcat():
    assert json.loads(json_envelope(RECORD)) == {
        "topic": "t",
        "partition": 3,
        "offset": 42,
        "tstype": "create",
        "ts": 1000,
        "headers": ["a", "1", "b", None],
        "key": "k",
        "payload": None,
    }
