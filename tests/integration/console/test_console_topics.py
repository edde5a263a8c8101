"""Pages of topics: the list, a topic, and the forms that change topics."""

import re

import pytest
from starlette.testclient import TestClient

from bench.peers.zookeeper import free_ports
from odradek.client.admin import NewTopic
from odradek.client.network.metadata import TopicInfo
from odradek.console import clusters
from odradek.console.pages import topics
from odradek.records.topic_partition import TopicPartition
from odradek.testing.blocking import BlockingBroker
from tests.integration.console.consoles import AT, ask, console, post, until


def names(text: str) -> list[str]:
    """Topics of a list, in order."""
    return re.findall(r'<th scope="row"><a href="[^"]*">([^<]*)</a>', text)


def setting_names(text: str) -> list[str]:
    """Names in a table of settings, in order."""
    return re.findall(r'<th scope="row" class="literal">([^<]*)</th>', text)


def partitions_of(broker: BlockingBroker, topic: str) -> int:
    """How many partitions a topic has."""
    found = ask(broker.bootstrap_servers, lambda admin: admin.describe_topics([topic]))[topic]
    assert isinstance(found, TopicInfo)
    return len(found.partitions)


def test_overview_shows_brokers_and_health(client: TestClient, broker: BlockingBroker) -> None:
    text = client.get(AT).text
    assert broker.bootstrap_servers in text
    assert "controller" in text
    assert "All partitions have their leaders" in text


def test_navigation_leads_to_every_page(client: TestClient) -> None:
    bar = client.get(AT).text.split('aria-label="Pages"')[1].split("</nav>")[0]
    links = re.findall(r'<a href="([^"]*)"[^>]*>([^<]*)</a>', bar)
    assert len(links) == 10
    for where, label in links:
        response = client.get(where)
        assert response.status_code == 200
        assert f'aria-current="page">{label}</a>' in response.text


def test_broker_page_shows_directories_and_settings(client: TestClient, broker: BlockingBroker) -> None:
    where = re.findall(rf'href="({AT}/brokers/\d+)"', client.get(AT).text)
    text = client.get(where[0]).text
    assert broker.bootstrap_servers in text
    assert str(broker.folder) in text
    assert "static broker config" in text


def test_settings_of_a_broker_are_searched_by_name_and_value(client: TestClient, broker: BlockingBroker) -> None:
    where = re.findall(rf'href="({AT}/brokers/\d+)"', client.get(AT).text)[0]
    assert setting_names(client.get(where, params={"q": "LOG.RETENTION.H"}).text) == ["log.retention.hours"]
    assert "log.dirs" in setting_names(client.get(where, params={"q": str(broker.folder)}).text)
    assert setting_names(client.get(where, params={"q": "nothing-of-this-name"}).text) == []


def test_missing_broker_is_not_found(client: TestClient) -> None:
    assert client.get(AT + "/brokers/4711").status_code == 404


def test_groups_of_a_topic_lead_to_their_pages(broker: BlockingBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests fill the broker: samples of it shall not become rare.
    monkeypatch.setattr(clusters, "BUSY_SHARE", 1.0)
    topic, other = broker.topic(), broker.topic()
    broker.produce(topic, "a", "b", "c")
    name = f"{topic}-reader"
    ask(broker.bootstrap_servers, lambda admin: admin.groups.alter_offsets(name, {TopicPartition(topic, 0): 1}))
    row = rf'<a href="({AT}/group\?name={name})">{name}</a></th><td>\w+</td><td class="n">1</td><td class="n">2</td>'
    with console(broker.bootstrap_servers, sample_s=0.05) as client:
        until(lambda: re.search(row, client.get(f"{AT}/topics/{topic}/groups").text))
        assert name in client.get(f"{AT}/group", params={"name": name}).text
        assert name not in client.get(f"{AT}/topics/{other}/groups").text


def test_unreachable_cluster_is_an_error_page() -> None:
    options = {"default_api_timeout_ms": 200, "request_timeout_ms": 200}
    with console("127.0.0.1:1", options=options) as client:
        response = client.get(AT)
    assert response.status_code == 502
    assert "cannot be asked" in response.text


def test_topics_are_searched_without_case(client: TestClient, broker: BlockingBroker) -> None:
    broker.topic("search-Alpha")
    broker.topic("search-beta")
    assert names(client.get(AT + "/topics?q=SEARCH-a").text) == ["search-Alpha"]


def test_internal_topics_are_hidden_until_asked_for(client: TestClient, broker: BlockingBroker) -> None:
    place = TopicPartition(broker.topic(), 0)
    ask(broker.bootstrap_servers, lambda admin: admin.groups.alter_offsets("g", {place: 0}))
    assert "__consumer_offsets" not in names(client.get(AT + "/topics").text)
    assert "__consumer_offsets" in names(client.get(AT + "/topics?internal=yes").text)


def test_topics_are_shown_in_pages_and_sorted(client: TestClient, broker: BlockingBroker) -> None:
    made = [NewTopic(f"paged-{i:03}", 1 + i % 3, 1) for i in range(60)]
    ask(broker.bootstrap_servers, lambda admin: admin.create_topics(made))
    first = client.get(AT + "/topics?q=paged-").text
    assert names(first) == [f"paged-{i:03}" for i in range(50)]
    assert "51 to 60 of 60 topics" in client.get(AT + "/topics?q=paged-&page=2").text
    assert names(client.get(AT + "/topics?q=paged-&sort=-topic").text)[0] == "paged-059"
    assert names(client.get(AT + "/topics?q=paged-&sort=-partitions").text)[0] == "paged-002"


@pytest.mark.parametrize("column", topics.COLUMNS)
def test_topics_are_sorted_by_every_column(client: TestClient, broker: BlockingBroker, column: str) -> None:
    broker.topic(f"sorted-{column.replace('_', '-')}")
    ascending = names(client.get(f"{AT}/topics?q=sorted-&sort={column}").text)
    assert sorted(ascending) == sorted(names(client.get(f"{AT}/topics?q=sorted-&sort=-{column}").text))
    assert f"sorted-{column.replace('_', '-')}" in ascending


def test_reader_chooses_the_rows_of_a_page(client: TestClient, broker: BlockingBroker) -> None:
    made = [NewTopic(f"rows-{i:03}", 1, 1) for i in range(101)]
    ask(broker.bootstrap_servers, lambda admin: admin.create_topics(made))
    assert len(names(client.get(AT + "/topics?q=rows-&rows=100").text)) == 100
    assert names(client.get(AT + "/topics?q=rows-&rows=100&page=2").text) == ["rows-100"]
    assert len(names(client.get(AT + "/topics?q=rows-&rows=7").text)) == 50


def test_favourite_topic_is_kept_and_removed(client: TestClient, broker: BlockingBroker) -> None:
    topic = broker.topic()
    post(client, AT + "/favourites", topic=topic)
    assert names(client.get(AT + "/topics?favourites=yes").text) == [topic]
    post(client, AT + "/favourites", topic=topic)
    assert names(client.get(AT + "/topics?favourites=yes").text) == []


def test_records_and_rates_appear_after_samples(broker: BlockingBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    # Other tests fill the broker: samples of it shall not become rare.
    monkeypatch.setattr(clusters, "BUSY_SHARE", 1.0)
    topic = broker.topic()
    broker.produce(topic, *["x"] * 7)
    with console(broker.bootstrap_servers, sample_s=0.05) as client:

        def shows() -> bool:
            text = client.get(f"{AT}/topics?q={topic}").text
            return '<td class="n">7</td>' in text and "0/s" in text

        until(shows)


def test_plots_show_what_is_written_and_read(broker: BlockingBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "BUSY_SHARE", 1.0)
    topic = broker.topic()
    place = TopicPartition(topic, 0)
    with console(broker.bootstrap_servers, sample_s=0.05) as client:

        def is_plotted() -> bool:
            broker.produce(topic, "x")
            end = len(broker.records(topic))
            ask(broker.bootstrap_servers, lambda admin: admin.groups.alter_offsets(f"{topic}-plotted", {place: end}))
            text = client.get(f"{AT}/topics/{topic}/metrics").text
            rates = re.findall(r"Records (?:in|out, by commits of groups): ([^<]+)<", text)
            return text.count('<svg class="plot') == 3 and len(rates) == 2 and not {"0/s", "–"} & set(rates)

        until(is_plotted)
        assert topic in client.get(AT + "/metrics").text


def test_latencies_of_brokers_are_plotted() -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    with BlockingBroker({"odradek.http.listener": address}) as broker:
        url = f"http://{address}/metrics"
        topic = broker.topic()
        with console(broker.bootstrap_servers, sample_s=0.05, metrics={"test": [url]}) as client:

            def is_plotted() -> bool:
                broker.produce(topic, "x")
                text = client.get(AT + "/metrics").text
                return bool(re.search(r"Produce requests, quantile 0.99: [0-9.]+ ms.*?<svg", text, re.DOTALL))

            until(is_plotted)
            until(lambda: re.search(r"event loop, quantile 0.99: [0-9.]+ ms", client.get(AT + "/metrics").text))
            assert "does not answer" not in client.get(AT + "/metrics").text


def test_topic_page_shows_partitions_with_offsets(client: TestClient, broker: BlockingBroker) -> None:
    topic = broker.topic(partitions=2)
    broker.produce(topic, "a", "b", "c", key="k")
    text = client.get(f"{AT}/topics/{topic}").text
    assert '<td class="n">3</td>' in text
    assert str(broker.folder) in text


def test_topic_page_cuts_a_thousand_partitions(client: TestClient, broker: BlockingBroker) -> None:
    topic = broker.topic(partitions=1_000)
    text = client.get(f"{AT}/topics/{topic}?page=10").text
    assert "901 to 1\u202f000 of 1\u202f000 partitions" in text
    assert text.count('<th scope="row"') == 100


def test_settings_have_source_and_documentation(client: TestClient, broker: BlockingBroker) -> None:
    topic = broker.topic(configs={"cleanup.policy": "compact"})
    text = client.get(f"{AT}/topics/{topic}/settings").text
    assert "dynamic topic config" in text
    assert "compact" in text
    assert "retention.ms" in client.get(f"{AT}/topics/{topic}/settings?all=yes").text


def test_topic_is_created_with_settings(client: TestClient, broker: BlockingBroker) -> None:
    response = post(client, AT + "/create-topic", topic="made", partitions="3", settings="retention.ms=60000\n")
    assert response.status_code == 200
    assert "<h1>made</h1>" in response.text
    assert names(client.get(AT + "/topics?q=made").text) == ["made"]
    assert partitions_of(broker, "made") == 3
    assert "60000" in client.get(f"{AT}/topics/made/settings").text


def test_wrong_topic_name_is_reported(client: TestClient) -> None:
    response = post(client, AT + "/create-topic", topic="no spaces <b>")
    assert response.status_code == 400
    assert "<b>" not in response.text.split("<main")[1].replace("<b class", "")


@pytest.mark.parametrize("settings", ["retention.ms=", "retention.ms=soon", "no.such.setting=1", "retention.ms"])
def test_wrong_setting_of_a_new_topic_is_reported(client: TestClient, broker: BlockingBroker, settings: str) -> None:
    response = post(client, AT + "/create-topic", topic="never-made", settings=settings)
    assert response.status_code == 400
    assert settings.partition("=")[0] in response.text
    assert "never-made" not in names(client.get(AT + "/topics?q=never-made").text)


def test_records_of_a_compacted_topic_stay(client: TestClient, broker: BlockingBroker) -> None:
    """Kafka rejects the deletion of records (POLICY_VIOLATION), and allows it once the policy is `delete` again."""
    topic = broker.topic(configs={"cleanup.policy": "compact"})
    broker.produce(topic, "kept", key="k")
    assert post(client, f"{AT}/topics/{topic}/empty", confirm=topic).status_code == 400
    assert [each.value for each in broker.records(topic)] == [b"kept"]
    post(client, f"{AT}/topics/{topic}/alter", name="cleanup.policy", value="delete")
    assert post(client, f"{AT}/topics/{topic}/empty", confirm=topic).status_code == 200
    assert broker.records(topic) == []


def test_topic_of_a_deleted_name_starts_empty(client: TestClient, broker: BlockingBroker) -> None:
    topic = broker.topic()
    broker.produce(topic, "old")
    post(client, f"{AT}/topics/{topic}/delete", confirm=topic)
    until(lambda: post(client, AT + "/create-topic", topic=topic, partitions="1").status_code == 200)
    assert broker.records(topic) == []


def test_topic_grows_after_confirmation(client: TestClient, broker: BlockingBroker) -> None:
    topic = broker.topic()
    post(client, f"{AT}/topics/{topic}/grow", partitions="4", confirm=topic)
    assert partitions_of(broker, topic) == 4


def test_setting_is_set_and_returned_to_its_default(client: TestClient, broker: BlockingBroker) -> None:
    topic = broker.topic()
    page = f"{AT}/topics/{topic}/settings"
    post(client, f"{AT}/topics/{topic}/alter", name="retention.ms", value="123456")
    assert "123456" in client.get(page).text
    post(client, f"{AT}/topics/{topic}/alter", name="retention.ms", reset="yes")
    assert "123456" not in client.get(page).text


@pytest.mark.parametrize("action", ["grow", "empty", "delete"])
def test_change_of_topic_needs_its_typed_name(client: TestClient, broker: BlockingBroker, action: str) -> None:
    topic = broker.topic()
    broker.produce(topic, "kept")
    response = post(client, f"{AT}/topics/{topic}/{action}", partitions="2", confirm=topic[:-1])
    assert response.status_code == 400
    assert [each.value for each in broker.records(topic)] == [b"kept"]


def test_records_are_deleted_after_confirmation(client: TestClient, broker: BlockingBroker) -> None:
    topic = broker.topic()
    broker.produce(topic, "gone")
    post(client, f"{AT}/topics/{topic}/empty", confirm=topic)
    assert broker.records(topic) == []


def test_topic_is_deleted_after_confirmation(client: TestClient, broker: BlockingBroker) -> None:
    topic = broker.topic()
    post(client, f"{AT}/topics/{topic}/delete", confirm=topic)
    assert topic not in ask(broker.bootstrap_servers, lambda admin: admin.list_topics())
