"""Apache's Java client 4.3 in a program of ours: KIP-848 groups, migration of groups, transactions, administration."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.peers.kafka import QUICK
from odradek.testing import BlockingBroker
from tests.interop.conftest import KAFKA, JavaTools

PROGRAM = Path(__file__).with_name("ModernClients.java")
LIMIT_SECONDS = 240


@pytest.mark.parametrize(
    "case",
    [
        "admin",
        *(pytest.param(case, marks=pytest.mark.long) for case in ("groups", "migration", "transactions")),
    ],
)
def test_the_java_client(java_tools: JavaTools, bootstrap: str, case: str) -> None:
    assert java_tools
    found = subprocess.run([sys.executable, str(KAFKA), "classpath"], capture_output=True, text=True, check=True)
    command = ["java", "-Xmx300m", *QUICK, "-cp", found.stdout.strip(), str(PROGRAM), bootstrap, case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_SECONDS)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.strip().endswith(f"ok {case}")


def test_java_client_writes_and_reads_through_the_fixture(
    java_tools: JavaTools, kafka_broker: BlockingBroker, kafka_topic: str
) -> None:
    server = ("--bootstrap-server", kafka_broker.bootstrap_servers)
    java_tools.run("console-producer", *server, "--topic", kafka_topic, stdin="by Java\n")
    assert [record.value for record in kafka_broker.records(kafka_topic)] == [b"by Java"]
    kafka_broker.produce(kafka_topic, "by the fixture")
    found = java_tools.run(
        "console-consumer", *server, "--topic", kafka_topic, "--from-beginning", "--max-messages", "2"
    )
    assert found.split("\n")[:2] == ["by Java", "by the fixture"]
