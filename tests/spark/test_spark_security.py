"""Spark over SASL_SSL with SCRAM and an own authority, with the rights that docs/SPARK.md lists and no others."""

from __future__ import annotations

import logging
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.lifecycle import Broker
from odradek.client import Admin, Consumer, NewTopic, Producer
from odradek.client.admin import AclBinding, AclOperation, ResourceType, ScramMechanism, ScramUpsertion, raise_first
from odradek.client.blocking import Blocking
from odradek.records.topic_partition import TopicPartition
from tests.certificates import Authority
from tests.integration.sasl_brokers import ADMIN, ADMIN_PASSWORD, PLAIN
from tests.integration.tls_brokers import Security
from tests.spark.pipelines import Pipeline, run_query
from tests.spark.support import Topics, run_to_end

pytestmark = pytest.mark.xdist_group("spark")

PLANTED = "planted-password-4711"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
ROWS = 100
OF_THE_PIPELINE = [
    (ResourceType.TOPIC, "in", AclOperation.READ),
    (ResourceType.TOPIC, "out", AclOperation.WRITE),
    (ResourceType.TOPIC, "out", AclOperation.READ),
    (ResourceType.TRANSACTIONAL_ID, "pipeline", AclOperation.WRITE),
    (ResourceType.GROUP, "__eos-pipeline", AclOperation.READ),
    (ResourceType.GROUP, "lag", AclOperation.READ),
    (ResourceType.TOPIC, "odradek-spark-batches", AclOperation.READ),
    (ResourceType.TOPIC, "odradek-spark-batches", AclOperation.WRITE),
    (ResourceType.TOPIC, "odradek-spark-batches", AclOperation.CREATE),
    (ResourceType.TOPIC, "odradek-spark-batches", AclOperation.DESCRIBE_CONFIGS),
]
"""The table of docs/SPARK.md."""


class Secured(NamedTuple):
    """A broker whose only way in is SASL_SSL."""

    bootstrap: str
    authority: str
    blocking: Blocking

    def client(self) -> dict[str, Any]:
        """Options of the administrator's clients."""
        return {
            "bootstrap_servers": self.bootstrap,
            "security_protocol": "SASL_SSL",
            "ssl_cafile": self.authority,
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": ADMIN,
            "sasl_plain_password": ADMIN_PASSWORD,
        }

    def spark(self) -> dict[str, str]:
        """Options of the pipeline, under the names of Spark's own connector."""
        return {
            "kafka.bootstrap.servers": self.bootstrap,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.location": self.authority,
            "kafka.ssl.truststore.type": "PEM",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f'{SCRAM} required username="pipeline" password="{PLANTED}";',
        }

    async def prepare(self) -> None:
        async with Admin(**self.client()) as admin:
            user = ScramUpsertion("pipeline", ScramMechanism.SCRAM_SHA_512, PLANTED, 4096)
            assert await admin.users.alter([user]) == {"pipeline": None}
            raise_first(await admin.create_topics([NewTopic("in", 2, 1), NewTopic("out", 2, 1)]))
            bindings = [AclBinding(kind, name, "User:pipeline", right) for kind, name, right in OF_THE_PIPELINE]
            assert set((await admin.acls.create(bindings)).values()) == {None}
        async with Producer(**self.client()) as producer:
            for number in range(ROWS):
                await producer.send("in", b"%d" % number, partition=number % 2)
            await producer.flush()

    async def visible(self) -> list[int]:
        found: list[int] = []
        places = [TopicPartition("out", index) for index in range(2)]
        async with Consumer(**self.client(), isolation_level="read_committed") as consumer:
            ends = await consumer.end_offsets(places)
            consumer.assign(places)
            consumer.seek_to_beginning()
            while any([await consumer.position(each) < ends[each] for each in places]):
                found += [int(each.value) for each in await consumer.poll(500)]
        return sorted(found)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    security = Security(folder / "certificates")
    settings = security.settings(
        folder / "data",
        listeners="SASL_SSL://127.0.0.1:0",
        security_inter_broker_protocol="SASL_SSL",
        sasl_enabled_mechanisms="PLAIN,SCRAM-SHA-512",
        authorizer_class_name="odradek",
        super_users=f"User:{ADMIN}",
    )
    jaas = f'{PLAIN} required user_{ADMIN}="{ADMIN_PASSWORD}";'
    settings["listener.name.sasl_ssl.plain.sasl.jaas.config"] = jaas
    with Blocking() as blocking:
        broker = Broker(BrokerConfig(settings))
        blocking.run(broker.start())
        found = Secured(broker.bootstrap, security.authority.file, blocking)
        blocking.run(found.prepare())
        yield found
        blocking.run(broker.stop())


@contextmanager
def log_of_java(spark: Any, path: Path) -> Iterator[None]:
    """What Spark's Java logs goes to a file, too."""
    log4j = spark._jvm.org.apache.logging.log4j
    context = log4j.LogManager.getContext(False)
    root = context.getConfiguration().getRootLogger()
    builder = log4j.core.appender.FileAppender.newBuilder().withFileName(str(path)).setName("planted")
    appender = builder.setLayout(log4j.core.layout.PatternLayout.createDefaultLayout()).build()
    appender.start()
    root.addAppender(appender, None, None)
    spark.sparkContext.setLogLevel("INFO")
    try:
        yield
    finally:
        spark.sparkContext.setLogLevel("FATAL")
        root.removeAppender("planted")
        appender.stop()


def denials(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "kafka.authorizer.logger"]


def test_stream_and_batch_need_the_listed_rights_and_show_no_password(
    spark: Any,
    secured: Secured,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "kafka.authorizer.logger")
    caplog.set_level(logging.DEBUG, "odradek")
    options = secured.spark()
    plans: list[str] = []

    def start() -> Any:
        frame = spark.readStream.format("odradek").options(subscribe="in", startingOffsets="earliest", **options).load()
        writer = frame.select("key", "value").writeStream.format("odradek").options(topic="out", **options)
        writer = writer.options(transactionalId="pipeline", sourceGroup="lag")
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True).start()

    with log_of_java(spark, tmp_path / "java.log"):
        query = run_to_end(start)
        plans.append(query._jsq.explainInternal(True))
        assert secured.blocking.run(secured.visible()) == list(range(ROWS))
        run_to_end(start)
        batch = spark.read.format("odradek").options(subscribe="in", **options).load()
        assert batch.count() == ROWS
        plans.append(batch._jdf.queryExecution().toString())
        write = batch.select("key", "value").write.format("odradek").options(topic="out", **options)
        write.option("transactionalId", "pipeline").mode("append").save()
        # What the web interface and event logs show of all queries.
        executions = spark._jsparkSession.sharedState().statusStore().executionsList()
        plans += [executions.apply(index).physicalPlanDescription() for index in range(executions.size())]
    assert secured.blocking.run(secured.visible()) == sorted([*range(ROWS)] * 2)
    assert denials(caplog) == []
    assert any("AppendData" in plan for plan in plans)
    for plan in plans:
        assert PLANTED not in plan
    assert PLANTED not in caplog.text
    assert "odradek" in (tmp_path / "java.log").read_text()
    for file in (each for each in tmp_path.rglob("*") if each.is_file()):
        assert PLANTED.encode() not in file.read_bytes(), file


def occupied(count: int) -> list[socket.socket]:
    """Sockets that listen on so many ports in a row."""
    for base in range(20_000, 30_000, count):
        held: list[socket.socket] = []
        try:
            held.extend(socket.create_server(("127.0.0.1", port)) for port in range(base, base + count))
        except OSError:
            for each in held:
                each.close()
            continue
        return held
    raise AssertionError("no ports in a row are free")


def test_leases_come_from_the_given_port_over_tls(spark: Any, topics: Topics, tmp_path: Path) -> None:
    """The query fails while none of the port's sixteen is free, and with a certificate that tasks do not trust."""
    security = Security(tmp_path / "certificates")
    pipeline = Pipeline(topics, tmp_path / "checkpoint")
    pipeline.fill(150)
    held = occupied(16)
    options = {"leaseHost": "127.0.0.1", "leasePort": str(held[0].getsockname()[1])}
    files = {"leaseCertificate": security.broker.both, "leaseAuthority": security.authority.file}
    failed = run_query(spark, pipeline, topics.bootstrap, options=options | files)
    assert "in use" in failed, failed
    held.pop(7).close()
    wrong = files | {"leaseAuthority": Authority(tmp_path / "other").file}
    failed = run_query(spark, pipeline, topics.bootstrap, options=options | wrong)
    assert "certificate" in failed, failed
    assert pipeline.visible() == []
    assert run_query(spark, pipeline, topics.bootstrap, options=options | files) == ""
    pipeline.check_complete()
    for each in held:
        each.close()


def test_failure_shows_no_password(spark: Any, secured: Secured) -> None:
    options = secured.spark() | {"kafka.request.timeout.ms": "3000"}
    with pytest.raises(Exception, match="TOPIC_AUTHORIZATION_FAILED") as caught:
        spark.read.format("odradek").options(subscribe="secret", **options).load().count()
    assert PLANTED not in str(caught.value)
