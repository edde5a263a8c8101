"""Apache's admin client, kafka-delegation-tokens, kafka-acls and kafka-configs at a broker with SASL, TLS and ACLs."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.peers.kafka import QUICK
from bench.peers.secured import OPERATOR, OPERATOR_PASSWORD, OTHERS, PASSWORD, USER, SecuredBroker, Security
from tests.interop.conftest import KAFKA

pytestmark = pytest.mark.long

PROGRAM = Path(__file__).with_name("SecuredAdmin.java")
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    folder = tmp_path_factory.mktemp("secured")
    security = Security(folder / "security", folder / "data", "SCRAM-SHA-512")
    with SecuredBroker(folder / "data", security, {"num.partitions": 1}) as broker:
        yield broker


def client_file(broker: SecuredBroker, name: str, password: str, *, is_token: bool = False) -> str:
    """A `--command-config` for Java: SCRAM over TLS."""
    path = broker.security.folder / f"{name}.properties"
    extension = ' tokenauth="true"' if is_token else ""
    path.write_text(
        "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\n"
        f'sasl.jaas.config={SCRAM} required username="{name}" password="{password}"{extension};\n'
        f"ssl.truststore.type=PEM\nssl.truststore.location={broker.security.authority}\n"
    )
    return str(path)


def test_kafka_delegation_tokens_creates_renews_and_expires(broker: SecuredBroker, java_tools: Any) -> None:
    """The token logs in another tool before it is expired."""
    connection = ("--bootstrap-server", broker.bootstrap, "--command-config", client_file(broker, USER, PASSWORD))

    def tool(*words: str) -> str:
        return str(java_tools.run("delegation-tokens", *connection, *words))

    created = tool("--create", "--max-life-time-period", "86400000", "--renewer-principal", "User:alice")
    row = re.search(rf"^(\S+)\s+(\S+)\s+User:{USER}\s+User:{USER}\s+\[User:alice\]", created, re.MULTILINE)
    assert row is not None, created
    token_id, mac = row.groups()
    topics = java_tools.run(
        "topics", "--bootstrap-server", broker.bootstrap, "--list",
        "--command-config", client_file(broker, token_id, mac, is_token=True),
    )  # fmt: skip
    assert topics.strip() == ""
    assert token_id in tool("--describe", "--owner-principal", f"User:{USER}")
    assert "Completed renew operation" in tool("--renew", "--renew-time-period", "60000", "--hmac", mac)
    assert "Completed expire operation" in tool("--expire", "--expiry-time-period", "-1", "--hmac", mac)
    assert token_id not in tool("--describe", "--owner-principal", f"User:{USER}")


def test_kafka_acls_adds_lists_and_removes_over_tls(broker: SecuredBroker, java_tools: Any) -> None:
    config = client_file(broker, OPERATOR, OPERATOR_PASSWORD)
    connection = ("--bootstrap-server", broker.bootstrap, "--command-config", config)
    rule = (
        "--topic",
        "orders-",
        "--resource-pattern-type",
        "prefixed",
        "--allow-principal",
        "User:alice",
        "--producer",
    )
    java_tools.run("acls", *connection, "--add", *rule)
    listed = java_tools.run("acls", *connection, "--list", "--principal", "User:alice")
    assert "resourceType=TOPIC, name=orders-, patternType=PREFIXED" in listed
    for operation in ("WRITE", "DESCRIBE", "CREATE"):
        assert f"(principal=User:alice, host=*, operation={operation}, permissionType=ALLOW)" in listed
    java_tools.run("acls", *connection, "--remove", "--force", *rule)
    assert "orders-" not in java_tools.run("acls", *connection, "--list")


def test_kafka_configs_creates_a_user_that_logs_in(broker: SecuredBroker, java_tools: Any) -> None:
    config = client_file(broker, OPERATOR, OPERATOR_PASSWORD)
    java_tools.run(
        "configs", "--bootstrap-server", broker.bootstrap, "--command-config", config, "--alter",
        "--entity-type", "users", "--entity-name", "carol", "--add-config", "SCRAM-SHA-512=[password=of-carol]",
    )  # fmt: skip
    own = client_file(broker, "carol", "of-carol")
    listed = java_tools.run("topics", "--bootstrap-server", broker.bootstrap, "--command-config", own, "--list")
    assert listed.strip() == ""


@pytest.mark.parametrize("case", ["acls", "tokens"])
def test_the_java_admin_client_over_sasl_ssl(broker: SecuredBroker, java_tools: Any, case: str) -> None:
    assert java_tools
    for name, password in {USER: PASSWORD, OPERATOR: OPERATOR_PASSWORD, **OTHERS}.items():
        client_file(broker, name, password)
    found = subprocess.run([sys.executable, str(KAFKA), "classpath"], capture_output=True, text=True, check=True)
    where = [broker.bootstrap, str(broker.security.folder), f"127.0.0.1:{broker.ports['PLAINTEXT']}"]
    command = ["java", "-Xmx300m", *QUICK, "-cp", found.stdout.strip(), str(PROGRAM), *where, case]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stdout.strip().endswith(f"ok {case}")
