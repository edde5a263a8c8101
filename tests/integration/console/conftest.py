"""Brokers and consoles for each module of this folder."""

import asyncio
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from odradek.console import clusters
from odradek.testing.blocking import BlockingBroker
from tests.integration.console.consoles import console
from tests.integration.sasl_brokers import ADMIN, ADMIN_PASSWORD, PLAIN, add_users


@pytest.fixture(scope="module")
def broker() -> Iterator[BlockingBroker]:
    """The broker of a module."""
    with BlockingBroker() as started:
        yield started


@pytest.fixture(scope="module")
def client(broker: BlockingBroker) -> Iterator[TestClient]:
    """A console that may change the cluster."""
    with console(broker.bootstrap_servers, allow_changes=True, sample_s=0.2) as opened:
        yield opened


@pytest.fixture(scope="module")
def reader(broker: BlockingBroker) -> Iterator[TestClient]:
    """A console that only reads."""
    with console(broker.bootstrap_servers) as opened:
        yield opened


@pytest.fixture(scope="module")
def secured() -> Iterator[str]:
    """A broker with an authorizer: the users are admin, bob and, by SCRAM, alice; the last two may do nothing."""
    users = f'user_{ADMIN}="{ADMIN_PASSWORD}" user_bob="bob-secret"'
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": (
            f'{PLAIN} required username="{ADMIN}" password="{ADMIN_PASSWORD}" {users};'
        ),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{ADMIN}",
    }
    with BlockingBroker(settings) as broker:
        asyncio.run(add_users(broker.bootstrap_servers))
        yield broker.bootstrap_servers


@pytest.fixture(autouse=True)
def fresh_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages show topics that a test has just created."""
    monkeypatch.setattr(clusters, "TOPICS_FRESH_S", -1.0)
