"""`odradek serve --quorum`: which node this is, its settings, and how the nodes form one cluster and never two."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.ports import Ports
from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.main import main
from odradek.cli.serving.quorum_forming import Forming, Listed, form_or_join, own_node, parse_quorum, settings_of_node
from odradek.kraft.checkpoints import read_checkpoint
from odradek.log.directories.checkpoint_formats import MetaProperties, parse_meta_properties
from tests.certificates import Authority


def test_hosts_have_ids_in_the_order_of_the_list_and_two_ports() -> None:
    nodes = parse_quorum("kafka1, kafka2:9192,[::1]:9292")
    assert nodes == [Listed(1, "kafka1", 9092), Listed(2, "kafka2", 9192), Listed(3, "::1", 9292)]
    assert [each.controller for each in nodes] == [("kafka1", 9093), ("kafka2", 9193), ("::1", 9293)]


@pytest.mark.parametrize("text", ["", "a,,b", "a:0", "a:65535", "a:x", ":9092", "a,a", "a:9092,a:9093"])
def test_list_with_a_wrong_or_repeated_host_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="--quorum: "):
        parse_quorum(text)


def test_own_node_is_the_one_on_this_machine_or_the_named_one() -> None:
    nodes = parse_quorum("192.0.2.1,127.0.0.1,192.0.2.3")
    assert own_node(nodes, None) == nodes[1]
    assert own_node(nodes, "192.0.2.3:9092") == nodes[2]
    with pytest.raises(UsageError, match="is not among the nodes"):
        own_node(nodes, "127.0.0.1:9999")
    with pytest.raises(UsageError, match="no node of --quorum is on this machine"):
        own_node(nodes[::2], None)
    with pytest.raises(UsageError, match="several nodes of --quorum are on this machine"):
        own_node(parse_quorum("127.0.0.1,127.0.0.1:9192"), None)


def test_node_advertises_the_name_of_the_list_and_binds_all_interfaces() -> None:
    nodes = parse_quorum("kafka1,kafka2,kafka3")
    config = BrokerConfig(settings_of_node(nodes, nodes[1]))
    assert config.joins_quorum
    assert [str(each) for each in config.words("controller.quorum.bootstrap.servers")] == [
        "kafka1:9093", "kafka2:9093", "kafka3:9093",
    ]  # fmt: skip
    assert [(each.host, each.port) for each in config.listeners()] == [("", 9092)]
    assert [(each.host, each.port) for each in config.advertised_listeners()] == [("kafka2", 9092)]
    assert (config.number("default.replication.factor"), config.number("min.insync.replicas")) == (3, 2)
    assert config.flag("controller.quorum.auto.join.enable")


@pytest.mark.parametrize("words", [("server.properties",), ("--brokers", "3"), ("--security",)])
def test_quorum_goes_with_settings_of_the_command_line_only(
    words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", "--quorum", "127.0.0.1", *words]) == 2
    assert "--quorum has settings of its own" in capsys.readouterr().err


# --- forming ---


def free_nodes(count: int) -> list[Listed]:
    """Nodes on 127.0.0.1 whose ports are free."""
    found: list[Listed] = []
    while len(found) < count:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            port = first.getsockname()[1]
            try:
                second.bind(("127.0.0.1", port + 1))
            except OSError:
                continue
        if all(abs(port - each.port) > 1 for each in found):
            found.append(Listed(len(found) + 1, "127.0.0.1", port))
    return found


def forming(
    nodes: Sequence[Listed], own: Listed, place: Path, more: Mapping[str, str] = MappingProxyType({})
) -> Forming:
    settings = settings_of_node(nodes, own) | {"log.dirs": str(place / str(own.node_id)), **more}
    return Forming(BrokerConfig(settings, is_formatted=True), Ports(), nodes, own)


def identity(place: Path, node_id: int) -> MetaProperties:
    return parse_meta_properties((place / str(node_id) / "meta.properties").read_bytes())


def tls(folder: Path) -> dict[str, str]:
    """TLS between controllers, each of which proves itself."""
    authority = Authority(folder)
    return {
        "listener.security.protocol.map": "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": authority.issue("/CN=node").both,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": authority.file,
        "listener.name.controller.ssl.client.auth": "required",
    }


@pytest.mark.parametrize("has_tls", [False, True], ids=["plain", "tls"])
def test_first_node_forms_the_cluster_when_all_others_have_none(tmp_path: Path, has_tls: bool) -> None:
    nodes = free_nodes(2)
    more = tls(tmp_path / "certificates") if has_tls else {}

    async def scenario() -> None:
        async with asyncio.timeout(30):
            second = asyncio.create_task(forming(nodes, nodes[1], tmp_path, more).run())
            await forming(nodes, nodes[0], tmp_path, more).run()
            second.cancel()  # the first node's controller, which does not run here, would name the cluster
            await asyncio.wait({second})

    asyncio.run(scenario())
    own = identity(tmp_path, 1)
    snapshot = tmp_path / "1" / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    [voter] = read_checkpoint(snapshot.read_bytes()).controls[1].voters
    assert (own.node_id, voter.voter_id, voter.voter_directory_id) == (1, 1, own.directory_id)
    assert not (tmp_path / "2" / "meta.properties").exists()


def test_quorum_with_logins_between_controllers_is_formatted_by_hand(tmp_path: Path) -> None:
    nodes = free_nodes(2)
    login = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="b" user_a="b";'
    more = {
        "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.controller.plain.sasl.jaas.config": login,
    }
    with pytest.raises(CommandError, match="storage format"):
        asyncio.run(forming(nodes, nodes[0], tmp_path, more).run())


def test_first_node_forms_no_cluster_while_another_is_silent(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    nodes = free_nodes(3)

    async def scenario() -> None:
        tasks = [asyncio.create_task(forming(nodes, each, tmp_path).run()) for each in nodes[:2]]
        async with asyncio.timeout(30):
            while str(nodes[2]) not in caplog.text:
                await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)

    with caplog.at_level("INFO", "odradek.serve"):
        asyncio.run(scenario())
    assert not list(tmp_path.rglob("meta.properties"))


def test_nodes_with_other_lists_form_no_cluster(tmp_path: Path) -> None:
    nodes = free_nodes(2)
    swapped = [nodes[1]._replace(node_id=1), nodes[0]._replace(node_id=2)]

    async def scenario() -> None:
        tasks = [
            asyncio.create_task(forming(nodes, nodes[0], tmp_path / "x").run()),
            asyncio.create_task(forming(swapped, swapped[0], tmp_path / "y").run()),
        ]
        async with asyncio.timeout(30):
            done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()
        await asyncio.wait(tasks)
        for task in done:
            with pytest.raises(CommandError, match="was started with another --quorum"):
                task.result()

    asyncio.run(scenario())
    assert not list(tmp_path.rglob("meta.properties"))


def test_directory_of_a_broker_with_a_store_is_not_taken(tmp_path: Path) -> None:
    nodes = free_nodes(1)
    settings = settings_of_node(nodes, nodes[0]) | {"log.dirs": str(tmp_path)}
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
    with pytest.raises(CommandError, match="use another --data-dir"):
        asyncio.run(form_or_join(BrokerConfig(settings, is_formatted=True), nodes, nodes[0], asyncio.Event()))
