"""Records in the console: where to begin, how values are read, search, streams, download, produce."""

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from odradek.client.framing import framed
from odradek.console.messages import filters
from odradek.console.messages.masks import Masks
from odradek.console.messages.schemas import Schemas
from odradek.testing.blocking import BlockingBroker
from tests.integration.console.consoles import AT, console, post


def values(client: TestClient, topic: str, **fields: Any) -> list[str]:
    """Values of the records that a page shows, in order."""
    text = client.get(f"{AT}/topics/{topic}/messages", params=fields).text
    return re.findall(r"<h3>Value .*?<pre[^>]*>(.*?)</pre>", text, re.DOTALL)


def events(client: TestClient, topic: str, **fields: Any) -> list[tuple[str, str]]:
    """Server-sent events of a search."""
    text = client.get(f"{AT}/topics/{topic}/messages/stream", params=fields).text
    return [
        (
            re.findall(r"^event: (.*)$", each, re.MULTILINE)[0],
            "\n".join(re.findall(r"^data: (.*)$", each, re.MULTILINE)),
        )
        for each in text.split("\n\n")
        if each
    ]


def found(client: TestClient, topic: str, **fields: Any) -> list[int]:
    """Offsets of the records that a search finds."""
    return [
        int(re.findall(r'class="place">\d+ : (\d+)<', text)[0])
        for name, text in events(client, topic, **fields)
        if name == "record"
    ]


@pytest.fixture(scope="module")
def numbers(broker: BlockingBroker) -> str:
    """A topic with the records 0 to 9."""
    topic = broker.topic()
    broker.produce(topic, *[json.dumps({"n": i, "tags": ["even" if i % 2 == 0 else "odd"]}) for i in range(10)])
    return topic


def test_newest_records_come_first(client: TestClient, broker: BlockingBroker) -> None:
    topic = broker.topic()
    broker.produce(topic, "a", "b", "c")
    assert values(client, topic, limit=2) == ["c", "b"]


def test_oldest_records_come_first(client: TestClient, broker: BlockingBroker) -> None:
    topic = broker.topic()
    broker.produce(topic, "a", "b", "c")
    assert values(client, topic, limit=2, **{"from": "oldest"}) == ["a", "b"]


def test_records_begin_at_an_offset(client: TestClient, broker: BlockingBroker) -> None:
    topic = broker.topic()
    broker.produce(topic, "a", "b", "c")
    assert values(client, topic, offset=1, partition=0, **{"from": "offset"}) == ["b", "c"]


def test_records_begin_at_a_time(client: TestClient, broker: BlockingBroker) -> None:
    topic = broker.topic()
    broker.produce(topic, "a")
    at = broker.records(topic)[0].timestamp
    assert values(client, topic, time=at, **{"from": "time"}) == ["a"]
    assert values(client, topic, time=at + 60_000, **{"from": "time"}) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"from": "offset", "offset": "x"},
        {"from": "time", "time": "yesterday"},
        {"partition": "7"},
        {"from": "elsewhere"},
        {"limit": "-1"},
        {"q": "x" * 3000},
    ],
)
def test_wrong_field_is_reported(client: TestClient, numbers: str, fields: dict[str, str]) -> None:
    response = client.get(f"{AT}/topics/{numbers}/messages", params=fields)
    assert response.status_code == 400 or "Failed" in response.text
    assert 'role="alert"' in response.text


def test_values_are_read_by_their_bytes(client: TestClient, broker: BlockingBroker) -> None:
    topic = broker.topic()
    broker.produce(topic, b"\x00\xff", '{"a": 1}', "text", None)
    text = client.get(f"{AT}/topics/{topic}/messages").text
    assert "00 ff" in text
    assert "tombstone (null)" in text
    assert re.findall(r'<h3>Value <span class="tag">(\w+)<', text) == ["none", "text", "json", "hex"]


def test_committed_offsets_are_readable_records(client: TestClient, broker: BlockingBroker, numbers: str) -> None:
    from odradek.records.topic_partition import TopicPartition
    from tests.integration.console.consoles import ask

    ask(broker.bootstrap_servers, lambda admin: admin.groups.alter_offsets("reads", {TopicPartition(numbers, 0): 4}))
    text = client.get(f"{AT}/topics/__consumer_offsets/messages").text
    assert "&#34;group&#34;: &#34;reads&#34;" in text


@pytest.mark.parametrize(
    ("kind", "expression", "offsets"),
    [
        ("text", '"N": 7', [7]),
        ("path", "$[?@ == 7]", [7]),
        ("path", "$.tags[?@ == 'odd']", [9, 7, 5, 3, 1]),
        ("cel", "value.n > 7", [9, 8]),
        ("cel", "record.value.n == 3 && record.partition == 0", [3]),
        ("cel", "'even' in value.tags && offset < 3", [2, 0]),
    ],
)
def test_search_finds_records(client: TestClient, numbers: str, kind: str, expression: str, offsets: list[int]) -> None:
    assert found(client, numbers, q=expression, filter=kind) == offsets


def test_search_ends_with_what_was_read(client: TestClient, numbers: str) -> None:
    name, text = events(client, numbers, q="nowhere")[-1]
    assert name == "end"
    assert "All records were read. 10 records" in text


def test_search_stops_at_its_limit(client: TestClient, numbers: str) -> None:
    assert found(client, numbers, q="even", limit=2) == [8, 6]


@pytest.mark.parametrize(("kind", "expression"), [("cel", "value.n >"), ("path", "$[?"), ("cel", "1")])
def test_expression_that_finds_nothing_says_why(client: TestClient, numbers: str, kind: str, expression: str) -> None:
    assert found(client, numbers, q=expression, filter=kind) == []
    assert events(client, numbers, q=expression, filter=kind)[-1][0] == "end"


def test_failed_evaluations_are_counted(client: TestClient, numbers: str) -> None:
    assert "failed on 10 records" in events(client, numbers, q="value.missing > 1", filter="cel")[-1][1]


def test_endless_expression_is_ended(client: TestClient, numbers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nested comprehensions over a list take exponential time in CEL."""
    monkeypatch.setattr(filters, "EVALUATION_S", 1.0)
    numbers_list = "[" + ",".join(["1"] * 60) + "]"
    expression = "true"
    for depth in range(6):
        expression = f"{numbers_list}.all(x{depth}, {expression})"
    name, text = events(client, numbers, q=expression, filter="cel")[-1]
    assert name == "end"
    assert "took longer than 1 s" in text


def test_new_records_are_streamed(broker: BlockingBroker) -> None:
    """In a process of its own: the test client returns only complete responses."""
    import subprocess
    import sys
    import urllib.request

    topic = broker.topic()
    command = [sys.executable, "-m", "odradek.cli.main", "console", "--listen", "127.0.0.1:0"]
    with subprocess.Popen([*command, "-b", broker.bootstrap_servers], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        url = process.stdout.readline().split("url=")[1].split()[0]
        with urllib.request.urlopen(f"{url}c/cluster/topics/{topic}/messages/stream?from=live", timeout=60) as stream:
            assert stream.readline() == b"event: progress\n"
            broker.produce(topic, "fresh")
            while b"event: record" not in (line := stream.readline()):
                assert line
            body = b"".join(stream.readline() for _ in range(12))
        process.terminate()
        assert process.wait(30) == 0
    assert b"fresh" in body


def test_download_is_json_lines(client: TestClient, broker: BlockingBroker) -> None:
    topic = broker.topic()
    broker.produce(topic, "=1+1", b"\xff", None, key="k")
    response = client.get(f"{AT}/topics/{topic}/messages/download?from=oldest")
    assert response.headers["content-disposition"] == f'attachment; filename="{topic}.jsonl"'
    lines = [json.loads(each) for each in response.text.splitlines()]
    assert [(each["offset"], each["key"], each["value"]) for each in lines] == [
        (0, "k", "=1+1"), (1, "k", "/w=="), (2, "k", None)
    ]  # fmt: skip
    assert lines[1]["value_encoding"] == "base64"


@pytest.mark.parametrize("query", ["partition=99", "filter=cel&q=value%20%3D%3D%3D"])
def test_download_that_cannot_begin_is_a_page(client: TestClient, broker: BlockingBroker, query: str) -> None:
    response = client.get(f"{AT}/topics/{broker.topic()}/messages/download?{query}")
    assert response.status_code == 400
    assert "content-disposition" not in response.headers


def test_record_is_produced_with_headers(client: TestClient, broker: BlockingBroker) -> None:
    topic = broker.topic(partitions=2)
    form = {"partition": "1", "key": "k", "key_form": "text", "value": "a\r\nb", "headers": "h=1\nbytes=hex:00ff\nnone"}
    assert post(client, f"{AT}/topics/{topic}/produce", **form).status_code == 200
    (record,) = broker.records(topic)
    assert (record.partition, record.key, record.value) == (1, b"k", b"a\nb")
    assert list(record.headers) == [("h", b"1"), ("bytes", b"\x00\xff"), ("none", None)]


def test_produced_record_is_shown_with_key_value_and_header(client: TestClient, broker: BlockingBroker) -> None:
    topic = broker.topic()
    post(client, f"{AT}/topics/{topic}/produce", key="the-key", value="the-value", headers="the-name=the-content")
    assert values(client, topic) == ["the-value"]
    text = client.get(f"{AT}/topics/{topic}/messages").text
    assert '<pre tabindex="0">the-key</pre>' in text
    assert '<th scope="row" class="literal">the-name</th><td class="literal">the-content</td>' in text


def test_link_of_a_record_leads_to_it_alone(client: TestClient, broker: BlockingBroker) -> None:
    topic = broker.topic()
    broker.produce(topic, "first", "second", "third")
    text = client.get(f"{AT}/topics/{topic}/messages").text
    links = re.findall(r'<a href="([^"]*)">Link to this record</a>', text)
    linked = client.get(html.unescape(links[1])).text
    assert re.findall(r'class="place">([^<]*)<', linked) == ["0 : 1"]
    assert "second" in linked


def test_address_of_a_search_has_its_filter(client: TestClient, numbers: str) -> None:
    """A search is kept or passed on as the address of its page, which fills the form and finds the same."""
    fields = {"filter": "cel", "q": "value.n == 7", "from": "oldest", "limit": "5"}
    text = client.get(f"{AT}/topics/{numbers}/messages", params=fields).text
    assert 'value="value.n == 7"' in text
    assert '<option value="cel" selected>' in text
    stream = re.findall(r'data-stream="([^"]*)"', text)[0]
    assert "0 : 7" in client.get(html.unescape(stream)).text


def test_tombstone_is_produced(client: TestClient, broker: BlockingBroker) -> None:
    topic = broker.topic()
    post(client, f"{AT}/topics/{topic}/produce", key="k", key_form="text", value="", value_form="none")
    assert broker.records(topic)[0].value is None


def test_form_has_the_contents_of_a_stored_record(client: TestClient, broker: BlockingBroker) -> None:
    topic = broker.topic()
    broker.produce(topic, b"\xfe\x01", key="k")
    text = client.get(f"{AT}/topics/{topic}/produce?partition=0&offset=0").text
    assert "fe 01</textarea>" in text
    assert '<option value="hex" selected>' in text


@pytest.fixture
def payments(broker: BlockingBroker, tmp_path: Path) -> tuple[str, Schemas]:
    """A topic with one Avro value in Confluent's wire format, and its schema from a file."""
    schema = {
        "type": "record",
        "name": "Payment",
        "fields": [{"name": "card", "type": "string"}, {"name": "amount", "type": "int"}],
    }
    (tmp_path / "payment.avsc").write_text(json.dumps(schema))
    topic = broker.topic()
    broker.produce(topic, framed(7, b"\x084711\x54"), b"\x00\xff")
    return topic, Schemas.parse([f"{topic}={tmp_path}/payment.avsc"])


def test_avro_values_are_shown_searched_and_downloaded(broker: BlockingBroker, payments: tuple[str, Schemas]) -> None:
    topic, schemas = payments
    with console(broker.bootstrap_servers, schemas=schemas) as client:
        text = client.get(f"{AT}/topics/{topic}/messages").text
        assert "&#34;amount&#34;: 42" in text
        assert "schema id 7" in text
        assert "not decoded" in text
        assert found(client, topic, q="value.amount == 42", filter="cel") == [0]
        assert found(client, topic, q='"amount": 42') == [0]
        lines = client.get(f"{AT}/topics/{topic}/messages/download?from=oldest").text.splitlines()
        assert json.loads(json.loads(lines[0])["value"]) == {"card": "4711", "amount": 42}
        assert "00 00 00 00 07" in client.get(f"{AT}/topics/{topic}/messages?form=hex").text


def test_masks_hide_fields_of_avro_values(broker: BlockingBroker, payments: tuple[str, Schemas]) -> None:
    topic, schemas = payments
    masks = Masks.parse([f"{topic}:value.card"])
    with console(broker.bootstrap_servers, schemas=schemas, masks=masks, allow_changes=True) as client:
        assert "&#34;amount&#34;: 42" in client.get(f"{AT}/topics/{topic}/messages").text
        for form in ("auto", "json", "text", "hex"):
            text = client.get(f"{AT}/topics/{topic}/messages?form={form}").text
            assert "4711" not in text
            assert "34 37 31 31" not in text
        assert found(client, topic, q="4711") == []
        assert "4711" not in client.get(f"{AT}/topics/{topic}/messages/download").text
        assert client.get(f"{AT}/topics/{topic}/produce?partition=0&offset=0").status_code == 403


def test_avro_record_is_produced_again_with_its_bytes(broker: BlockingBroker, payments: tuple[str, Schemas]) -> None:
    topic, schemas = payments
    with console(broker.bootstrap_servers, schemas=schemas, allow_changes=True) as client:
        text = client.get(f"{AT}/topics/{topic}/produce?partition=0&offset=0").text
    assert "00 00 00 00 07 08 34 37 31 31 54" in text or "\x084711" in text


def test_masks_apply_before_search_and_download(broker: BlockingBroker) -> None:
    topic = broker.topic()
    broker.produce(topic, '{"card": "4711", "name": "Ada"}')
    with console(broker.bootstrap_servers, allow_changes=True, masks=Masks.parse([f"{topic}:value.card"])) as client:
        assert found(client, topic, q="4711") == []
        assert found(client, topic, q="value.card.contains('4')", filter="cel") == []
        assert found(client, topic, q="Ada") == [0]
        assert "4711" not in client.get(f"{AT}/topics/{topic}/messages").text
        assert "4711" not in client.get(f"{AT}/topics/{topic}/messages?form=hex").text
        assert "4711" not in client.get(f"{AT}/topics/{topic}/messages/download").text
        assert client.get(f"{AT}/topics/{topic}/produce?partition=0&offset=0").status_code == 403
