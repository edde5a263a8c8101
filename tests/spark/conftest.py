"""One Spark session for the worker's Spark tests, topics, and a plain way to fill and read them.

ODRADEK_INTEROP_BOOTSTRAP=HOST:PORT runs these tests against a broker that is already there, Apache's for example.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.peers import kafka, spark_connector
from odradek.client.blocking import Blocking
from odradek.spark.interpreter import launcher
from odradek.spark.java import ensure_java
from tests.spark.postgres import PostgresServer, postgres_server
from tests.spark.support import Topics
from tests.spark.targets import Target, is_cached


@pytest.fixture(scope="session")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Target]]:
    """Brokers of other kinds, started for the first test that wants one."""
    started: dict[str, Target] = {}
    yield started
    for each in started.values():
        each.stop()


@pytest.fixture(scope="session")
def bootstrap(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, targets: dict[str, Target]
) -> str:
    """HOST:PORT of the broker under test; with a parameter, of the target with that name."""
    name = getattr(request, "param", "odradek")
    if name == "odradek":
        given = os.environ.get("ODRADEK_INTEROP_BOOTSTRAP")
        return given or str(request.getfixturevalue("odradek_broker").bootstrap)
    if not is_cached(name):
        pytest.skip("Apache Kafka is not there; `python bench/peers/kafka.py fetch` gets it")
    if name not in targets:
        target = Target(name, tmp_path_factory.mktemp(name))
        target.start()
        targets[name] = target
    return targets[name].bootstrap


@pytest.fixture(scope="session")
def faults_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("faults") / "fault"


@pytest.fixture
def faults(faults_file: Path) -> Iterator[Path]:
    """Where a test writes `POINT ACTION` to break the session's Python processes once: see faults/sitecustomize.py."""
    faults_file.unlink(missing_ok=True)
    yield faults_file
    faults_file.unlink(missing_ok=True)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, faults_file: Path) -> Iterator[Any]:
    """A session on two threads; nothing of it listens beyond this machine."""
    from pyspark.sql import SparkSession

    here = Path(__file__).resolve()
    paths = [str(here.with_name("faults")), str(here.parents[2] / "src"), str(here.parents[2])]
    # Spark starts a dozen Python processes: compile for all of them once, and not into the working tree
    inherited = {
        "PYSPARK_PYTHON": launcher(),
        "ODRADEK_TEST_FAULTS": str(faults_file),
        "PYTHONPATH": os.pathsep.join(paths),
        "PYTHONPYCACHEPREFIX": str(tmp_path_factory.mktemp("pycache")),
    }
    builder = SparkSession.builder.master("local[2]").appName("tests")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.enabled": "false",
        # Java starts sooner and works slower: a fifth less processor time for these queries.
        "spark.driver.extraJavaOptions": " ".join(kafka.QUICK),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
        # A class path cannot grow later: Spark's own connector, where it is cached, is there for tests/spark/parity.
        "spark.driver.extraClassPath": os.pathsep.join(spark_connector.cached_jars()),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    # Java hands its environment to all that it starts; this process, and what other tests start, is to keep its own.
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", ensure_java())
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        for name, value in inherited.items():
            patch.setenv(name, value)
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("FATAL")
    yield session
    session.stop()


@pytest.fixture(autouse=True)
def _active_session(request: pytest.FixtureRequest) -> None:
    """Spark finds the data source of a write by the active session, which belongs to a thread of the JVM.

    A thread of Python gets another one of them when its connection to the JVM is made again.
    """
    if "spark" in request.fixturenames:
        session = request.getfixturevalue("spark")
        session._jvm.SparkSession.setActiveSession(session._jsparkSession)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PostgresServer]:
    with postgres_server(tmp_path_factory.mktemp("run")) as server:
        yield server


@pytest.fixture(scope="session")
def topics(bootstrap: str) -> Iterator[Topics]:
    with Blocking() as blocking:
        yield Topics(bootstrap, blocking)


@pytest.fixture
def reader(spark: Any, bootstrap: str) -> Callable[..., Any]:
    """`reader(topic, **options)`: a batch DataFrame."""

    def read(topic: str | None = None, **options: str) -> Any:
        source = spark.read.format("odradek").option("kafka.bootstrap.servers", bootstrap).options(**options)
        return (source if topic is None else source.option("subscribe", topic)).load()

    return read


@pytest.fixture
def stream(spark: Any, bootstrap: str) -> Callable[..., Any]:
    """`stream(topic, **options)`: a streaming DataFrame that begins at the earliest offset."""

    def read(topic: str | None = None, **options: str) -> Any:
        source = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
        source = source.options(**{"startingOffsets": "earliest", **options})
        return (source if topic is None else source.option("subscribe", topic)).load()

    return read
