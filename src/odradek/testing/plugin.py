"""pytest fixtures with real brokers; pytest finds this plugin where Odradek is installed.

`kafka_broker`: one broker for the session (for each worker of pytest-xdist). `kafka_cluster`: three brokers, likewise.
`kafka_topic`: the name of an empty topic of `kafka_broker`, another one for each test. `make_kafka_broker`: brokers of
the test's own. A broker starts when the first test asks for it; what it logged is shown with a test that fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import pytest

if TYPE_CHECKING:
    from odradek.testing.blocking import BlockingBroker, BlockingCluster


class _Logging(Protocol):
    def log(self) -> str: ...


_session_brokers = pytest.StashKey[list[_Logging]]()
_test_brokers = pytest.StashKey[list[_Logging]]()


@pytest.fixture(scope="session")
def kafka_broker(request: pytest.FixtureRequest) -> Iterator[BlockingBroker]:
    """A broker for the session: `kafka_broker.bootstrap_servers`."""
    from odradek.testing.blocking import BlockingBroker

    with BlockingBroker() as broker:
        request.config.stash.setdefault(_session_brokers, []).append(broker)
        yield broker
        request.config.stash[_session_brokers].remove(broker)


@pytest.fixture(scope="session")
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[BlockingCluster]:
    """A cluster of three brokers for the session; a test that stops brokers ends with `kafka_cluster.start()`."""
    from odradek.testing.blocking import BlockingCluster

    with BlockingCluster(3) as cluster:
        request.config.stash.setdefault(_session_brokers, []).append(cluster)
        yield cluster
        request.config.stash[_session_brokers].remove(cluster)


@pytest.fixture
def kafka_topic(kafka_broker: BlockingBroker) -> str:
    """The name of an empty topic with one partition, of this test's own."""
    return kafka_broker.topic()


@pytest.fixture
def make_kafka_broker(request: pytest.FixtureRequest) -> Iterator[Callable[..., BlockingBroker]]:
    """Starts brokers that end with this test: `make_kafka_broker({"num.partitions": 4}, links=["worker"])`."""
    from odradek.testing.blocking import BlockingBroker

    made: list[BlockingBroker] = []
    shown: list[_Logging] = request.node.stash.setdefault(_test_brokers, [])

    def make(settings: Mapping[str, object] | None = None, *, links: Sequence[str] = ()) -> BlockingBroker:
        broker = BlockingBroker(settings, links=links)
        made.append(broker)
        broker.start()
        shown.append(broker)
        return broker

    yield make
    for broker in made:
        broker.close()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Show the brokers' logs with a test that fails."""
    report = yield
    if report.failed:  # type: ignore[attr-defined]
        brokers = [*item.config.stash.get(_session_brokers, []), *item.stash.get(_test_brokers, [])]
        report.sections += [("log of the Kafka broker", broker.log()) for broker in brokers]  # type: ignore[attr-defined]
    return report
