"""What every client's test needs: a broker's address, topics, and Apache's tools.

ODRADEK_INTEROP_BOOTSTRAP=HOST:PORT runs these tests against a broker that is already there, Apache's for example.
"""

import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.client_suite import address_of, topic_with_leaders

ROOT = Path(__file__).resolve().parents[2]
KAFKA = ROOT / "bench" / "peers" / "kafka.py"


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """HOST:PORT of the broker under test."""
    given = os.environ.get("ODRADEK_INTEROP_BOOTSTRAP")
    return given or str(request.getfixturevalue("odradek_broker").bootstrap)


@pytest.fixture
def unique_name() -> Callable[[str], str]:
    return lambda prefix: f"{prefix}-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def create_topic(bootstrap: str, unique_name: Callable[[str], str]) -> Callable[..., str]:
    """Creates a topic and answers its name: `create_topic(partitions=3, config={...})`."""
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def create(partitions: int = 3, config: dict[str, str] | None = None) -> str:
        name = unique_name("interop")
        admin.create_topics([NewTopic(name, partitions, 1, config=config or {})])[name].result(30)
        return name

    return create


class JavaTools:
    """Apache Kafka's own command-line tools."""

    def run(self, tool: str, *args: str, stdin: str = "", timeout_seconds: float = 90) -> str:
        """The tool's standard output. Fails the test with its output if it does not exit with 0."""
        command = [sys.executable, str(KAFKA), "tool", tool, *args]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout_seconds)
        assert done.returncode == 0, f"{tool} exited with {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout


@pytest.fixture(scope="session")
def apache_kafka(java_tools: JavaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of an Apache Kafka 4.3.0, for tests of our own clients."""
    # Members get their assignment with a heartbeat: every five seconds at the earliest by default.
    kinds = ("consumer", "share")
    heartbeats = [f"group.{kind}.min.heartbeat.interval.ms=100" for kind in kinds]
    heartbeats += [f"group.{kind}.heartbeat.interval.ms=200" for kind in kinds]
    command = [sys.executable, str(KAFKA), "run", "--quick", "--port", "0", "--for", "3600"]
    command += [part for each in heartbeats for part in ("--set", each)]
    directory = str(tmp_path_factory.mktemp("apache-kafka"))
    with subprocess.Popen([*command, "--dir", directory], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        ready = process.stdout.readline().split()
        try:
            assert ready[:1] == ["ready"], f"Apache Kafka did not start, see {directory}"
            yield ready[1]
        finally:
            process.terminate()


@pytest.fixture(params=["apache", "odradek"])
def server(request: pytest.FixtureRequest) -> str:
    """HOST:PORT of each broker in turn."""
    return address_of(request, request.param)


@pytest.fixture(params=["odradek", pytest.param("apache", marks=pytest.mark.long)])
def suite_server(request: pytest.FixtureRequest) -> str:
    """As `server`, for the suite of our client; its tests on Apache's broker are long ones."""
    return address_of(request, request.param)


@pytest.fixture
def suite_topic(suite_server: str, unique_name: Callable[[str], str]) -> str:
    """A topic of three partitions on `suite_server`."""
    return topic_with_leaders(suite_server, unique_name("suite"))


@pytest.fixture(scope="session")
def java_tools() -> JavaTools:
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        pytest.skip("Apache's tools need Java, which is not installed")
    if not (os.environ.get("KAFKA_HOME") or shutil.which("mvn")):
        pytest.skip("Apache's tools come from KAFKA_HOME, which is not set, or by mvn, which is not on PATH")
    done = subprocess.run([sys.executable, str(KAFKA), "fetch"], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"Apache's tools could not be fetched: {done.stderr.strip()}")
    return JavaTools()
