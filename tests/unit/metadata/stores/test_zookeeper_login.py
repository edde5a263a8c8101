"""Logins at ZooKeeper: settings that cannot be followed."""

from __future__ import annotations

from pathlib import Path

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.metadata.stores.zookeeper_login import zookeeper_login
from odradek.ports.store import WrongStore


@pytest.mark.parametrize("principal", ["zookeeper", "zookeeper/host@REALM", "/host", "zookeeper/", "a/b/c"])
def test_server_principal_has_a_name_and_a_host(principal: str, tmp_path: Path) -> None:
    logins = tmp_path / "client.jaas"
    logins.write_text("Client { com.sun.security.auth.module.Krb5LoginModule required; };")
    settings = {"java.security.auth.login.config": str(logins), "zookeeper.server.principal": principal}
    with pytest.raises(WrongStore, match=r"zookeeper\.server\.principal: .*NAME/HOST is expected"):
        zookeeper_login(BrokerConfig(settings))
