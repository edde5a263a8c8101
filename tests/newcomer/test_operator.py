"""The way of an operator who knows kcat and rpk: the commands of CLI.md, CLUSTER.md and UPGRADING.md."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.integration.waiting import until
from tests.newcomer.environments import Newcomer
from tests.newcomer.pages import Page

CLI, CLUSTER, UPGRADING = Page("docs/CLI.md"), Page("docs/CLUSTER.md"), Page("docs/UPGRADING.md")
QUICK = "--set offsets.topic.num.partitions=3 --set transaction.state.log.num.partitions=3"
TWO_REPLICAS = (
    "--set default.replication.factor=2 --set min.insync.replicas=1 "
    "--set offsets.topic.replication.factor=2 --set transaction.state.log.replication.factor=2"
)
"""One broker is taken out for good, so that two must be enough for every topic."""


@pytest.fixture
def with_broker(newcomer: Newcomer) -> Iterator[Newcomer]:
    """The person, with a broker whose address is exported."""
    with newcomer.serving(f"odradek serve --listen 127.0.0.1:0 --data-dir ./data {QUICK}") as bootstrap:
        newcomer.variables["ODRADEK_BOOTSTRAP_SERVER"] = bootstrap
        yield newcomer


@contextmanager
def three_brokers(newcomer: Newcomer, settings: str = "") -> Iterator[str]:
    """What the first command of CLUSTER.md starts, on free ports."""
    start = CLUSTER.commands("Three brokers on one machine")[0].replace(":9092", ":0")
    with newcomer.serving(f"{start} {QUICK} {settings}") as bootstrap:
        newcomer.variables["ODRADEK_BOOTSTRAP_SERVER"] = bootstrap
        yield bootstrap


def filled(command: str, values: Mapping[str, str]) -> str:
    """A command of a table with these words in place of its capital letters."""
    return " ".join(
        re.sub(r"^[A-Z]+(?=$|:)", lambda match: values.get(match[0], match[0]), word) for word in command.split()
    )


def ending(command: str) -> str:
    """A command that ends, and reads a record where it produces."""
    if " -P" in command or " produce " in command:
        return f"printf 'k:v\\n' | {command}"
    reads = " -C" in command or " -G" in command or " consume " in command
    return f"{command} -e" if reads and not re.search(r" -(e|n|c) ?", command) else command


def codes(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell.replace("\\|", "|"))


def of_kcat() -> Iterator[tuple[str, list[str]]]:
    """Each command of kcat with the commands that the page has for it."""
    for theirs, same, ours in CLI.rows("kcat"):
        (kcat,) = codes(theirs)
        with_options = [kcat.replace("kcat", "odradek", 1)] if same.startswith("the same") else codes(same)
        yield kcat, with_options + codes(ours)


@pytest.mark.parametrize(("kcat", "commands"), [pytest.param(*each, id=each[0]) for each in of_kcat()])
def test_commands_for_those_of_kcat_work(kcat: str, commands: list[str], with_broker: Newcomer) -> None:
    assert commands
    values = {"B": with_broker.variables["ODRADEK_BOOTSTRAP_SERVER"], "T": "letters", "MS": "0"}
    with_broker.run("odradek topics --create --topic letters --partitions 3")
    with_broker.run("seq 7 | sed 's/^/k:/' | odradek produce letters -p 1 -K :")
    shown = [with_broker.run(ending(filled(each, values))) for each in commands]
    if " -C" in kcat and "-J" not in kcat:
        assert shown[0]
        assert len(set(shown)) == 1, "both columns print the same"


def test_commands_for_those_of_rpk_work(newcomer: Newcomer) -> None:
    commands = [each for _, ours in CLI.rows("rpk") for each in codes(ours) if each.startswith("odradek ")]
    assert len(commands) > 12
    values = {"T": "letters", "TOTAL": "5", "G": "group", "P": "here"}

    def place(command: str) -> int:
        """Topics are created first, then filled, read and shortened; what deletes them comes last."""
        order = (
            "topics --create",
            " produce ",
            " consume ",
            "delete-records",
            "",
            "groups --delete",
            "topics --delete",
        )
        return next((index for index, part in enumerate(order) if part and part in command), order.index(""))

    with three_brokers(newcomer):
        for command in sorted(commands, key=place):
            # Without a terminal to ask on, what deletes from several partitions wants to be confirmed.
            newcomer.run(ending(filled(command, values)) + " --yes" * ("delete-records" in command))
            if "topics --create" in command:
                newcomer.run("for partition in 0 1 2; do seq 100 | odradek produce letters -p $partition; done")


def test_commands_of_the_cluster_guide_succeed_in_order(newcomer: Newcomer) -> None:
    first, *commands = [each for each in CLUSTER.commands() if each.startswith("odradek ")]
    assert first.startswith("odradek serve --brokers 3")
    other = f"odradek serve --listen 127.0.0.1:0 --data-dir ./other {QUICK}"
    with three_brokers(newcomer, TWO_REPLICAS) as cluster, newcomer.serving(other) as old:
        newcomer.run("odradek topics --create --topic orders --partitions 2")
        for bootstrap in (old, cluster):
            newcomer.run(f"odradek topics --create --topic T --bootstrap-server {bootstrap}")
        for command in commands:
            given = filled(command, {"OLD": old, "NEW": cluster})
            if given.startswith("odradek reassign verify"):
                until(lambda given=given: newcomer.attempt(given).returncode == 0, "the plan is complete")  # type: ignore[misc]
            else:
                newcomer.run(given)


def test_file_of_a_cluster_on_zookeeper_is_accepted(newcomer: Newcomer) -> None:
    """Up to the client of ZooKeeper, which the page installs with an extra; the error names the command for that."""
    (properties,) = CLUSTER.blocks("Three machines on ZooKeeper")
    (newcomer.directory / "server.properties").write_text(properties.replace("/var/lib/odradek", "data"))
    done = newcomer.attempt("odradek serve server.properties")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.search(r"^odradek serve: .*zookeeper\.connect is set.*pip install .*\[zookeeper\]", done.stderr)
    assert done.stderr.count("\n") == 1


def test_rolling_upgrades_of_the_guide_restart_brokers(newcomer: Newcomer, fresh_programs: Path) -> None:
    """`ssh` is one that restarts nothing: the loop around it waits for replicas in sync."""
    restart, script = UPGRADING.blocks("A cluster, broker by broker")
    said = newcomer.directory / "said"
    ssh = f'ssh() {{ echo "$@" >> "{said}"; }}\nexport -f ssh\n'
    with three_brokers(newcomer):
        newcomer.run("odradek topics --create --topic orders --partitions 3 --replication-factor 3")
        newcomer.run(restart)
        newcomer.run(ssh + script)
        assert said.read_text().splitlines() == [f"kafka{n} sudo systemctl restart odradek" for n in (1, 2, 3)]
        assert " 0 under-replicated" in newcomer.run("odradek cluster status")
