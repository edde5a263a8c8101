"""The requests of our golden transcripts, answered by Apache Kafka 4.3; `tests/transcripts/apache` has what differs.

Each file has the requests of `tests/transcripts/answers` whose answers differ, with lines of ours (-) and Apache's (+).
`UPDATE_TRANSCRIPTS=1 ./dev test -m long tests/interop/test_answers_against_apache.py` writes them. Read what is new:
mend our answer, or know why it is better. The order of lists, texts of errors and what clusters have by chance do not
count.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.client.admin import Admin
from tests.interop.conftest import KAFKA
from tests.sim.scenarios import conversation
from tests.sim.scenarios.conversation import Conversation, settings_of

TRANSCRIPTS = Path(__file__).resolve().parents[1] / "transcripts"
NAMES: Final = ("fetch_sessions",)
"""More names play other transcripts. Those of topics and transactions do not repeat: a broker of Apache Kafka learns of
a topic, or writes a marker, some time after the answer."""
NOT_YET: Final = ("NOT_LEADER_OR_FOLLOWER", "COORDINATOR_LOAD_IN_PROGRESS", "COORDINATOR_NOT_AVAILABLE")
"""What Apache Kafka answers for a while after topics were created; its clients repeat the request."""
REPEATED_SECONDS: Final = 5.0
CHANGE_SECONDS: Final = 0.5
BY_CHANCE: Final = (
    (r"cluster_id='[^']*'", "cluster_id"),
    (r"(name='min.insync.replicas' value='1' config_source)=[34]", r"\1"),
    (r"uuid\(\d+\)", "uuid"),
    (r"log_append_time_ms=\d+", "log_append_time_ms"),
    (r"client_host='[^']*'", "client_host"),
    (r" ?error_message=\.\.\.", ""),
)
"""Patterns, and what stands for them. With eligible leader replicas `min.insync.replicas` is a dynamic default."""

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("apache-answers")]


class PatientConversation(Conversation):
    """Repeats a request while the answer says that the broker is not ready yet."""

    async def _ask(self, command: str) -> list[str]:
        deadline = time.monotonic() + REPEATED_SECONDS
        while True:
            lines = await super()._ask(command)
            if not any(name in line for line in lines for name in NOT_YET) or time.monotonic() > deadline:
                break
            await asyncio.sleep(0.2)
        if "Create" in command:
            # Its brokers learn of a change after the controller has answered.
            await asyncio.sleep(CHANGE_SECONDS)
        return lines


@contextmanager
def apache(settings: dict[str, str], folder: Path) -> Iterator[str]:
    """HOST:PORT of a broker, which does not look for records of 1970 to delete while a transcript is played."""
    given = {"num.partitions": "1", "log.initial.task.delay.ms": "3600000", **settings}
    command = [sys.executable, str(KAFKA), "run", "--quick", "--port", "0", "--for", "300", "--dir", str(folder)]
    command += [part for name, value in given.items() for part in ("--set", f"{name}={value}")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().split()[1]
        finally:
            process.terminate()


def played(text: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The transcript with Apache Kafka's answers."""
    settings = {name: value for name, value in settings_of(text).items() if not name.startswith("odradek.")}
    # "now" is what the clock of this machine says.
    monkeypatch.setattr(conversation, "EPOCH_MS", int(time.time() * 1000) - 3_600_000)

    async def play(bootstrap: str) -> str:
        no_simulation: Any = None
        async with Admin(bootstrap_servers=bootstrap, client_id="c") as admin:
            return await PatientConversation(no_simulation, admin).play(text)

    with apache(settings, folder) as bootstrap:
        found = asyncio.run(play(bootstrap))
    host, port = bootstrap.split(":")
    return found.replace(f"host='{host}' port={port}", "host='b1' port=9092")


def steps(text: str) -> list[tuple[str, list[str]]]:
    """Requests with the lines of their answers, without what happens by chance."""
    found: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        if line.startswith(">  "):
            found[-1] = (f"{found[-1][0]} {line[1:].strip()}", found[-1][1])
        elif line.startswith(">"):
            found.append((line, []))
        elif line.startswith("    ") and found:
            for pattern, text_instead in BY_CHANCE:
                line = re.sub(pattern, text_instead, line)
            found[-1][1].append(line)
    return found


def differences(ours: str, apaches: str) -> str:
    """The requests whose answers differ, each with the lines of both."""
    out = []
    for (request, mine), (same, others) in zip(steps(ours), steps(apaches), strict=True):
        assert request == same
        ours_only, apaches_only = Counter(mine) - Counter(others), Counter(others) - Counter(mine)
        if ours_only or apaches_only:
            out += [request, *(f"-{line}" for line in ours_only.elements())]
            out += [f"+{line}" for line in apaches_only.elements()]
    return "\n".join(out) + "\n"


@pytest.mark.parametrize("name", NAMES)
def test_answers_differ_from_apaches_as_is_known(
    name: str, java_tools: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del java_tools  # which skips where Java or Apache Kafka is missing
    text = (TRANSCRIPTS / "answers" / f"{name}.txt").read_text()
    found = differences(text, played(text, tmp_path, monkeypatch))
    known = TRANSCRIPTS / "apache" / f"{name}.txt"
    if os.environ.get("UPDATE_TRANSCRIPTS"):
        known.parent.mkdir(exist_ok=True)
        known.write_text(found)
    else:
        assert found == known.read_text()


def test_requests_whose_answers_differ_are_listed_with_both() -> None:
    ours = "> A {}\n    error_code=NONE\n> B {a: 1,\n>  b: 2}\n    x=1\n    cluster_id='a'\n"
    apaches = "> A {}\n    error_code=NONE\n> B {a: 1,\n>  b: 2}\n    x=2\n    cluster_id='b'\n"
    assert differences(ours, apaches) == "> B {a: 1, b: 2}\n-    x=1\n+    x=2\n"


def test_order_of_the_lines_of_an_answer_does_not_count() -> None:
    assert differences("> A {}\n    x=1\n    y=1\n", "> A {}\n    y=1\n    x=1\n") == "\n"
