"""Fixtures that start real brokers; the broker's log is shown with each test that fails."""

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import hypothesis
import pytest

from bench.peers.broker import BrokerProcess

# The command line's current profile is a developer's own: tests use none.
os.environ["ODRADEK_PROFILE"] = ""

# How long an example takes says more of the machine's load than of the code.
# In continuous integration the examples are the same in every run (as in Hypothesis's own profile for it): whether a
# change may land depends on the change. Everywhere else they are new ones in every run, and what they find is mended.
hypothesis.settings.register_profile(
    "odradek",
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize="CI" in os.environ,
    database=None if "CI" in os.environ else hypothesis.settings().database,
)
hypothesis.settings.load_profile("odradek")

MakeBroker = Callable[..., BrokerProcess]
_processes = pytest.StashKey[list[BrokerProcess]]()


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Undo what `odradek serve` configures when a test runs it in the tests' own process."""
    loggers = [logging.getLogger(name) for name in ("odradek", "kafka.authorizer", "kazoo", "asyncio")]
    before = [(each, list(each.handlers), each.level, each.propagate) for each in loggers]
    yield
    for each, handlers, level, propagate in before:
        each.handlers[:] = handlers
        each.setLevel(level)
        each.propagate = propagate


@pytest.fixture(scope="session")
def session_brokers(request: pytest.FixtureRequest) -> list[BrokerProcess]:
    """Every broker that runs for the whole session, so that their logs can be shown."""
    return request.config.stash.setdefault(_processes, [])


@pytest.fixture(scope="session")
def odradek_broker(
    tmp_path_factory: pytest.TempPathFactory, session_brokers: list[BrokerProcess]
) -> Iterator[BrokerProcess]:
    """One running broker with an empty data directory for the session (of each xdist worker)."""
    settings = {"num.partitions": 4, "group.initial.rebalance.delay.ms": 0}
    with BrokerProcess(tmp_path_factory.mktemp("odradek") / "data", settings) as broker:
        session_brokers.append(broker)
        yield broker
        session_brokers.remove(broker)


@pytest.fixture
def make_broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeBroker]:
    """Makes brokers of this test's own, not yet started, and ends them: `make_broker({"num.partitions": 4})`."""
    made: list[BrokerProcess] = []

    def make(settings: Mapping[str, object] | None = None, name: str = "data") -> BrokerProcess:
        broker = BrokerProcess(tmp_path / name, settings)
        made.append(broker)
        return broker

    request.node.stash[_processes] = made
    yield make
    for broker in made:
        broker.kill()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker of xdist also where xdist is off (`-p no:xdist`), as in `./dev mutants`."""
    config.addinivalue_line("markers", "xdist_group(name): run by one worker of xdist")


_SHARED_BY_ALL = {"apache_kafka": "apache", "fresh_programs": "newcomer", "kafkajs": "node", "go_clients": "go"}
"""Fixtures that take seconds to make, and the group of the tests that use them."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give tests that share what is dear to make to one worker of xdist: else each worker makes it for itself."""
    for item in items:
        if not isinstance(item, pytest.Function) or item.get_closest_marker("xdist_group"):
            continue
        group = next((_SHARED_BY_ALL[name] for name in item.fixturenames if name in _SHARED_BY_ALL), None)
        if group is None and any(
            definition.scope == "module"
            for name in item.fixturenames
            for definition in item.session._fixturemanager.getfixturedefs(name, item) or ()
        ):
            group = item.path.stem
        if item.path.parent.name == "house":
            group = "house"  # they share the parsed sources of the whole repository
        if group is not None:
            item.add_marker(pytest.mark.xdist_group(group))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.failed:
        brokers = [*item.config.stash.get(_processes, []), *item.stash.get(_processes, [])]
        report.sections += [(f"log of the broker in {b.data_dir}", b.log()) for b in brokers]
