"""The files of deploy/ are well-formed, and every command, option and setting in them exists."""

import argparse
import configparser
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.cli.arguments.options import Parser
from odradek.cli.catalog import COMMANDS, load
from odradek.cli.commands.serve import settings_of
from tests.unit.house.deployment import DEPLOY, commands_of, containers, document, documents, instructions

CONTAINERFILE = DEPLOY / "container" / "Containerfile"
UNIT = DEPLOY / "systemd" / "odradek.service"


class Unit(configparser.RawConfigParser):
    """A unit file; names of settings keep their case."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def unit() -> Unit:
    parser = Unit(strict=False, delimiters=("=",), comment_prefixes=("#",))
    parser.read_string(UNIT.read_text())
    return parser


def container_commands() -> Iterator[list[str]]:
    found = instructions(CONTAINERFILE)
    (entry,) = [json.loads(value) for name, value in found if name == "ENTRYPOINT"]
    (given,) = [json.loads(value) for name, value in found if name == "CMD"]
    (health,) = [value.partition("CMD ")[2] for name, value in found if name == "HEALTHCHECK"]
    yield from commands_of(entry + given)
    yield from commands_of(json.loads(health))


def compose_commands() -> Iterator[list[str]]:
    (compose,) = documents("container/compose.yaml")
    for service in compose["services"].values():
        yield from commands_of(["odradek", *service.get("command", ())] if service["image"] == "odradek" else [])
        yield from commands_of(service["healthcheck"]["test"][1:])


def kubernetes_commands() -> Iterator[list[str]]:
    for container in containers():
        yield from commands_of(container["command"])
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            yield from commands_of(container.get(probe, {}).get("exec", {}).get("command"))


SOURCES = {
    "systemd": lambda: commands_of(unit()["Service"]["ExecStart"]),
    "container": container_commands,
    "compose": compose_commands,
    "kubernetes": kubernetes_commands,
}
EXPECTED = {"systemd": 1, "container": 2, "compose": 6, "kubernetes": 3}


def parsed(words: list[str]) -> argparse.Namespace:
    """Raises UsageError for an unknown option."""
    assert words[0] in COMMANDS
    parser = Parser(prog=words[0], allow_abbrev=False)
    load(words[0]).configure(parser)
    return parser.parse(words[1:])


@pytest.mark.parametrize("source", SOURCES)
def test_commands_and_options_exist(source: str):
    commands = [parsed(words) for words in SOURCES[source]()]
    assert len(commands) == EXPECTED[source]


PROPERTIES = {
    "systemd": (DEPLOY / "systemd" / "server.properties").read_text,
    "systemd, member of a cluster": lambda: cluster_member((DEPLOY / "systemd" / "server.properties").read_text()),
    "container": lambda: "",
    "compose": (DEPLOY / "container" / "server.properties").read_text,
    "kubernetes": lambda: document("kubernetes/odradek.yaml", "ConfigMap", "odradek")["data"]["server.properties"],
}


def cluster_member(text: str) -> str:
    """The file with its commented settings in force."""
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("# listeners="))
    return "\n".join([*lines[:first], *(line.removeprefix("# ") for line in lines[first:])])


@pytest.mark.parametrize("source", PROPERTIES)
def test_settings_are_accepted(source: str, tmp_path: Path):
    """By the parser that `odradek serve` uses, with the settings of the command line on top."""
    path = tmp_path / "server.properties"
    path.write_text(PROPERTIES[source]())
    serving = [words for words in SOURCES[source.partition(",")[0]]() if words[0] == "serve"]
    assert serving
    for words in serving:
        filled = [word.replace("${HOSTNAME##*-}", "2") for word in words]
        config = BrokerConfig.load(str(path), settings_of(parsed(filled)))
        assert config.log_dirs == ["/var/lib/odradek"]


def test_unit_passes_systemd_analyze(tmp_path: Path):
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed")
    copy = tmp_path / UNIT.name
    copy.write_text(UNIT.read_text().replace("/opt/odradek/bin/odradek", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", copy], capture_output=True, text=True, timeout=60)
    complaints = [line for line in done.stderr.splitlines() if UNIT.name in line or UNIT.stem in line]
    assert complaints == []


def test_unit_waits_for_the_report_of_the_broker_and_gives_up_on_mistakes():
    service = unit()["Service"]
    assert service["Type"] == "notify"
    assert service["RestartPreventExitStatus"] == "2"
    assert service["User"] != "root"
    assert service["StateDirectory"] == "odradek"


def test_container_does_not_run_as_root_and_copies_what_exists():
    found = instructions(CONTAINERFILE)
    assert [value for name, value in found if name == "USER"] == ["9092:9092"]
    allowed = {line[1:] for line in (DEPLOY.parent / ".containerignore").read_text().splitlines() if line[0] == "!"}
    for name, value in found:
        if name == "COPY" and not value.startswith("--from"):
            *sources, _ = value.split()
            assert all((DEPLOY.parent / each).exists() and each in allowed for each in sources)
    assert (DEPLOY.parent / ".dockerignore").read_text() == (DEPLOY.parent / ".containerignore").read_text()


def test_compose_brokers_have_ids_ports_and_volumes_of_their_own():
    (compose,) = documents("container/compose.yaml")
    brokers = {name: each for name, each in compose["services"].items() if name.startswith("broker")}
    assert len(brokers) == 3
    for number, (name, broker) in enumerate(brokers.items(), 1):
        assert f"--set=broker.id={number}" in broker["command"]
        assert (
            f"--set=advertised.listeners=INTERNAL://{name}:19092,HOST://127.0.0.1:{9091 + number}" in broker["command"]
        )
        assert broker["ports"] == [f"127.0.0.1:{9091 + number}:{9091 + number}"]
        assert f"{name}:/var/lib/odradek" in broker["volumes"]
        assert name in compose["volumes"]


@pytest.mark.parametrize("name", ["odradek", "zookeeper"])
def test_manifests_fit_together(name: str):
    file = f"kubernetes/{name}.yaml"
    workload = document(file, "StatefulSet", name)["spec"]
    labels = workload["template"]["metadata"]["labels"]
    service = document(file, "Service", workload["serviceName"])["spec"]
    assert service["clusterIP"] == "None"
    assert service["publishNotReadyAddresses"] is True
    assert service["selector"] == labels == workload["selector"]["matchLabels"]
    budget = document(file, "PodDisruptionBudget", name)["spec"]
    assert budget["selector"]["matchLabels"] == labels
    assert budget["maxUnavailable"] == 1
    pod = workload["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    claims = {each["metadata"]["name"] for each in workload["volumeClaimTemplates"]}
    volumes = claims | {each["name"] for each in pod.get("volumes", ())}
    for container in pod["containers"]:
        assert {each["name"] for each in container["volumeMounts"]} <= volumes
        ports = {each["name"] for each in container["ports"]}
        assert container["livenessProbe"]["tcpSocket"]["port"] in ports
        assert "exec" in container["readinessProbe"]


def test_manifests_connect_to_the_zookeeper_that_they_define():
    text = PROPERTIES["kubernetes"]()
    servers = [f"zookeeper-{number}.zookeeper:2181" for number in range(3)]
    assert f"zookeeper.connect={','.join(servers)}/odradek" in text
    assert document("kubernetes/zookeeper.yaml", "StatefulSet", "zookeeper")["spec"]["replicas"] == len(servers)
