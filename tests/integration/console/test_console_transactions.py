"""The page of transactions: ids, hanging transactions, and their abort."""

import asyncio
import re
from collections.abc import Coroutine
from typing import Any

import pytest
from starlette.testclient import TestClient

from odradek.client.admin import Admin
from odradek.client.producer.transactions import TransactionalProducer
from odradek.client.reports.hanging import HangingTransaction, long_open
from odradek.console.pages import transactions
from odradek.records.topic_partition import TopicPartition
from odradek.testing.blocking import BlockingBroker
from tests.integration.console.consoles import AT, ask, post


@pytest.fixture
def abandoned(broker: BlockingBroker, monkeypatch: pytest.MonkeyPatch) -> TopicPartition:
    """A partition with an open transaction, whose producer is gone; the page regards it as hanging at once."""
    place = TopicPartition(broker.topic(), 0)

    async def begin() -> None:
        producer = TransactionalProducer(bootstrap_servers=broker.bootstrap_servers, transactional_id=place.topic)
        await producer.start()
        await producer.initialize()
        producer.begin()
        await (await producer.send(place.topic, b"open", partition=0))
        # Only the connections: `producer.close` would abort.
        await producer.producer.close(flush=False)

    async def find(admin: Admin, _places: object, **_limits: object) -> list[HangingTransaction]:
        producers: Any = await admin.transactions.describe_producers([place])
        return long_open(producers, 2**62, 0)

    asyncio.run(begin())
    monkeypatch.setattr(transactions, "find_hanging", find)
    return place


def hidden_fields(text: str) -> dict[str, str]:
    """Fields of the form that aborts."""
    form = text.split("/abort-transaction")[1].split("</form>")[0]
    return dict(re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', form))


def open_offsets(broker: BlockingBroker, place: TopicPartition) -> list[int]:
    """First offsets of the transactions that are open in a partition."""

    def states(admin: Admin) -> Coroutine[Any, Any, Any]:
        return admin.transactions.describe_producers([place])

    found = ask(broker.bootstrap_servers, states)[place]
    return [each.transaction_start_offset for each in found if each.transaction_start_offset is not None]


def test_hanging_transaction_is_aborted_from_its_form(
    client: TestClient, broker: BlockingBroker, abandoned: TopicPartition
) -> None:
    assert open_offsets(broker, abandoned) == [0]
    fields = hidden_fields(client.get(f"{AT}/transactions?hanging=yes").text)
    assert fields.pop("csrf")
    assert post(client, f"{AT}/abort-transaction", confirm=abandoned.topic, **fields).status_code == 200
    assert open_offsets(broker, abandoned) == []


def test_abort_needs_the_typed_name(client: TestClient, broker: BlockingBroker, abandoned: TopicPartition) -> None:
    fields = hidden_fields(client.get(f"{AT}/transactions?hanging=yes").text)
    del fields["csrf"]
    assert post(client, f"{AT}/abort-transaction", confirm="", **fields).status_code == 400
    assert open_offsets(broker, abandoned) == [0]


def test_reader_sees_no_form_that_aborts(reader: TestClient, abandoned: TopicPartition) -> None:
    text = reader.get(f"{AT}/transactions?hanging=yes").text
    assert str(abandoned) in text
    assert "/abort-transaction" not in text


@pytest.mark.parametrize(("name", "value"), [("producer_id", "x"), ("producer_epoch", "99999"), ("partition", "-1")])
def test_wrong_field_of_abort_is_reported(client: TestClient, name: str, value: str) -> None:
    form = {"topic": "t", "partition": "0", "producer_id": "1", "producer_epoch": "0", "coordinator_epoch": "0"}
    response = post(client, f"{AT}/abort-transaction", confirm="t", **{**form, name: value})
    assert response.status_code == 400
    assert name in response.text
