"""Contents of a cluster that try to become part of a page: none of it leaves its text."""

import re
from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient

from odradek.client.producer.producer import Producer
from odradek.records.topic_partition import TopicPartition
from odradek.testing.blocking import BlockingBroker
from tests.integration.console.consoles import AT, ask

ATTACK = (
    """"'><script>alert(1)</script><img src=x onerror=alert(2)> javascript:alert(3) {{7*7}}\r\nevent: end\n\ndata: x"""
)


class _Elements(HTMLParser):
    """Collects what would run: scripts, event handlers, links with a scheme, inline styles."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note dangerous elements."""
        given = dict(attrs)
        if tag in ("img", "iframe", "object", "embed", "style") or (tag == "script" and not given.get("src")):
            self.found.append(tag)
        for name, value in attrs:
            is_link = name in ("href", "src", "action", "formaction", "hx-get", "data-stream")
            if name.startswith("on") or name == "style" or (is_link and not (value or "").startswith(("/", "#"))):
                self.found.append(f"{tag} {name}={value}")


def dangers(text: str) -> list[str]:
    """What a page would run."""
    parser = _Elements()
    parser.feed(text)
    return parser.found


@pytest.fixture(scope="module")
def attacked(broker: BlockingBroker) -> str:
    """A topic whose record, a group whose name and offsets, are attacks."""
    topic = broker.topic()

    async def attack() -> None:
        async with Producer[bytes, bytes](bootstrap_servers=broker.bootstrap_servers) as producer:
            data = ATTACK.encode()
            await producer.send_and_wait(topic, data, data, [(ATTACK, data)])

    import asyncio

    asyncio.run(attack())
    place = TopicPartition(topic, 0)
    ask(broker.bootstrap_servers, lambda admin: admin.groups.alter_offsets(ATTACK, {place: 0}))
    return topic


@pytest.mark.parametrize("form", ["auto", "text", "json", "hex"])
def test_record_stays_text_in_pages(client: TestClient, attacked: str, form: str) -> None:
    text = client.get(f"{AT}/topics/{attacked}/messages?form={form}").text
    assert dangers(text) == []
    assert "49" not in re.findall(r"<pre[^>]*>(.*?)</pre>", text, re.DOTALL)[0]


def test_record_stays_text_in_streams(client: TestClient, attacked: str) -> None:
    text = client.get(f"{AT}/topics/{attacked}/messages/stream?q=alert").text
    assert dangers(text) == []
    kinds = re.findall(r"^event: (.*)$", text, re.MULTILINE)
    assert [each for each in kinds if each != "progress"] == ["record", "end"]
    assert all(line.startswith(("event: ", "data: ")) or not line for line in text.splitlines())


def test_record_stays_text_in_the_form_of_produce(client: TestClient, attacked: str) -> None:
    assert dangers(client.get(f"{AT}/topics/{attacked}/produce?partition=0&offset=0").text) == []


@pytest.mark.parametrize(
    "path",
    ["/topics?q={}", "/topics?sort={}", "/topics/{}", "/topics?page={}", "/topics/T/messages?q={}",
     "/topics/T/messages?from={}", "/topics/T/messages?partition={}", "/topics/T?state={}"],
)  # fmt: skip
def test_address_stays_text(client: TestClient, attacked: str, path: str) -> None:
    from urllib.parse import quote

    assert dangers(client.get(AT + path.replace("T", attacked).format(quote(ATTACK, safe=""))).text) == []


def test_committed_offset_of_an_attack_stays_text(client: TestClient, attacked: str) -> None:
    text = client.get(f"{AT}/topics/__consumer_offsets/messages").text
    assert "alert" in text
    assert dangers(text) == []


def test_download_is_no_page(client: TestClient, attacked: str) -> None:
    response = client.get(f"{AT}/topics/{attacked}/messages/download")
    assert response.headers["content-type"].startswith("application/x-ndjson")
    assert response.headers["content-disposition"].startswith("attachment")
    assert response.text.count("\n") == 1
