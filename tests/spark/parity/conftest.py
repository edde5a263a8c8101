"""A broker of either kind with the topics of the cases, for one module."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.peers import spark_connector
from odradek.client.blocking import Blocking
from tests.spark.parity.data import BROKER_SETTINGS, Filler
from tests.spark.support import Topics
from tests.spark.targets import Target, is_cached


@pytest.fixture(scope="module", params=["odradek", "kafka"])
def filler(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filler]:
    """An empty broker that compacts and deletes at once."""
    if not spark_connector.cached_jars():
        pytest.skip("Spark's own connector is not there; `python bench/peers/spark_connector.py jars` gets it")
    if not is_cached(request.param):
        pytest.skip("Apache Kafka is not there; `python bench/peers/kafka.py fetch` gets it")
    home: Path = tmp_path_factory.mktemp(f"parity-{request.param}")
    target = Target(request.param, home, settings=BROKER_SETTINGS)
    target.start()
    try:
        with Blocking() as blocking:
            found = Filler(Topics(target.bootstrap, blocking), blocking, f"parity-{uuid.uuid4().hex[:8]}")
            yield found
            found.close()
    finally:
        target.stop()
