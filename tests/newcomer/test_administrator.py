"""The way of an administrator who moves from Apache Kafka: commands of MIGRATION.md, refusals of SETTINGS.md."""

from __future__ import annotations

import re
import shutil
import socket
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from bench.peers.broker import BrokerProcess
from tests.integration.test_import import COUNTS, fill, make_apache_folder, read
from tests.newcomer.environments import Newcomer
from tests.newcomer.pages import Page
from tests.unit.log.test_log_ownership import contents

MakeBroker = Callable[..., BrokerProcess]
MIGRATION, SECURITY, SETTINGS = Page("docs/MIGRATION.md"), Page("docs/SECURITY.md"), Page("docs/SETTINGS.md")
CLUSTER_ID = """
from confluent_kafka.admin import AdminClient
print(AdminClient(%r).list_topics(timeout=%d).cluster_id)
"""
STOCK = """
    process.roles=broker,controller
    node.id=1
    controller.quorum.bootstrap.servers=localhost:9093
    listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:9093
    inter.broker.listener.name=PLAINTEXT
    controller.listener.names=CONTROLLER
    listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT
    num.network.threads=3
    num.io.threads=8
    socket.send.buffer.bytes=102400
    socket.request.max.bytes=104857600
    num.partitions=1
    num.recovery.threads.per.data.dir=2
    offsets.topic.replication.factor=1
    share.coordinator.state.topic.replication.factor=1
    share.coordinator.state.topic.min.isr=1
    transaction.state.log.replication.factor=1
    transaction.state.log.min.isr=1
    log.retention.hours=168
    log.segment.bytes=1073741824
    log.retention.check.interval.ms=300000
"""
"""What the file of Apache Kafka 4.3 for one node sets, but for folders and free ports."""


def tls(bootstrap: str) -> dict[str, str]:
    """Properties of a librdkafka client that trusts the page's authority."""
    return {"bootstrap.servers": bootstrap, "security.protocol": "ssl", "ssl.ca.location": "ca.pem"}


def free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.fixture
def kafka(make_broker: MakeBroker, tmp_path: Path) -> Path:
    """A folder as Apache Kafka leaves it, with 400 records of which group `g` has read 200."""
    settings = {
        "offsets.topic.num.partitions": COUNTS["__consumer_offsets"],
        "transaction.state.log.num.partitions": COUNTS["__transaction_state"],
    }
    broker = make_broker(settings, name="old").start()
    fill(broker.bootstrap)
    assert broker.stop() == 0
    make_apache_folder(broker.data_dir, tmp_path / "kafka")
    return tmp_path / "kafka"


def test_steps_of_the_page_move_a_broker(kafka: Path, newcomer: Newcomer) -> None:
    report, imports, verify, start, *looks = MIGRATION.commands("Step by step")
    new = newcomer.directory / "new"
    newcomer.variables.update(KAFKA=str(kafka), ODRADEK=str(new), ADDRESS=free_address())
    before = contents(kafka)
    assert "would be imported" in newcomer.run(report)
    assert not new.exists()
    assert "next: odradek serve" in newcomer.run(imports)
    assert "no problems found" in newcomer.run(verify)
    with newcomer.serving(start) as bootstrap:
        topics, groups = looks
        assert "orders" in newcomer.run(topics)
        lags = [line.split() for line in newcomer.run(groups).splitlines() if line.split()[:2] == ["g", "orders"]]
        assert any("200" in line for line in lags)
        assert read(bootstrap, "g", 200)[0][0] == 200
    assert contents(kafka) == before


def test_start_on_the_folder_of_apache_is_rejected(kafka: Path, newcomer: Newcomer) -> None:
    """With the file that Apache Kafka was started with."""
    before = contents(kafka)
    (newcomer.directory / "server.properties").write_text(f"{STOCK}log.dirs={kafka}\n")
    refused = newcomer.attempt("odradek serve server.properties")
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert "holds data of Apache Kafka" in refused.stderr
    assert "odradek import" in refused.stderr
    assert contents(kafka) == before


def test_records_are_mirrored_as_the_page_says(newcomer: Newcomer) -> None:
    serve = "odradek serve --listen 127.0.0.1:0 --set num.partitions=1 --data-dir"
    with newcomer.serving(f"{serve} old") as old, newcomer.serving(f"{serve} new") as new:
        for bootstrap in (old, new):
            newcomer.run(f"odradek topics --create --topic copied --bootstrap-server {bootstrap}")
        newcomer.run(f"printf 'a\\tone\\nb\\ttwo\\n' | odradek produce copied -b {old} -K '\\t' -H origin=test")
        newcomer.variables.update(OLD=old, ADDRESS=new, TOPIC="copied", RECORDS="records")
        newcomer.run("\n".join(MIGRATION.commands("Without stopping")))
        shown = [
            newcomer.run(f"odradek consume copied -b {each} --offset earliest -e -q -f '%k %v %h %T\\n'")
            for each in (old, new)
        ]
    assert shown[0] == shown[1]
    assert shown[0].startswith("a one origin=test")


def test_stock_file_of_apache_starts_a_broker(newcomer: Newcomer) -> None:
    (newcomer.directory / "server.properties").write_text(f"{STOCK}log.dirs=data\n")
    with newcomer.serving("odradek serve server.properties") as bootstrap:
        newcomer.run("odradek topics --create --topic orders", ODRADEK_BOOTSTRAP_SERVER=bootstrap)
    log = (newcomer.directory / "serve.log").read_text()
    assert log.count("num.network.threads") == 1, "a setting without effect is named"


def refused_settings() -> Iterator[str]:
    """The names of the page's table of refused settings of brokers."""
    of_brokers = SETTINGS.text.partition("## Settings of brokers")[2].partition("## Settings of topics")[0]
    for row in re.findall(r"^\| (`.+)$", of_brokers.partition("### Refused")[2], re.MULTILINE):
        yield from re.findall(r"`([^`]+)`", row.split(" | ")[0])


def test_every_setting_that_the_page_rejects_stops_the_start(newcomer: Newcomer) -> None:
    # That one is refused where it is changed while the broker runs; in a file it has an effect.
    names = [name for name in refused_settings() if name != "config.providers"]
    assert len(names) > 50
    lines = [f"{name}=nonsense" for name in names]
    (newcomer.directory / "server.properties").write_text("\n".join(lines) + "\n")
    refused = newcomer.attempt("odradek serve server.properties --listen 127.0.0.1:0 --data-dir data")
    assert refused.returncode == 2
    for number, name in enumerate(names, 1):
        assert re.search(rf"server\.properties:{number}: .*{re.escape(name)}", refused.stderr), name
    assert not (newcomer.directory / "data").exists()


def test_ten_minutes_of_tls_make_a_listener_that_wants_certificates(newcomer: Newcomer) -> None:
    """The page's commands and file, with a client that has a certificate signed in the same way, and one without."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    section = SECURITY.sections()["TLS in ten minutes"]
    commands, properties = [
        textwrap.dedent(each) for each in re.findall(r"^   ```\n(.*?)^   ```$", section, re.MULTILINE | re.DOTALL)
    ]
    newcomer.run(commands)
    settings = properties.replace("/path/to/", f"{newcomer.directory}/").replace(":9093", ":0")
    (newcomer.directory / "server.properties").write_text(settings)
    sign = "openssl x509 -req -in alice.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 1 -out alice.crt"
    request = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -keyout alice.key -out alice.csr"
    newcomer.run(f'{request} -subj "/O=Acme/CN=alice" && {sign}')
    with newcomer.serving("odradek serve server.properties --data-dir data") as bootstrap:
        known = {"ssl.certificate.location": "alice.crt", "ssl.key.location": "alice.key"}
        assert newcomer.program(CLUSTER_ID % ({**tls(bootstrap), **known}, 60)).strip()
        with pytest.raises(AssertionError, match="KafkaException"):
            # A client without a certificate tries again until its time is over.
            newcomer.program(CLUSTER_ID % (tls(bootstrap), 10))
