"""Golden transcripts of what brokers answer, with every field: `tests/transcripts/answers/*.txt`.

`UPDATE_TRANSCRIPTS=1 ./dev test tests/sim/scenarios/test_conversations.py` writes what brokers answer now; read the
difference before you commit it. `conversation.py` says what a transcript may contain.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from odradek.client.admin import Admin
from odradek.client.network import connection
from odradek.testing.simulation import Simulation, simulate
from tests.sim.scenarios.conversation import Conversation, settings_of

DIRECTORY = Path(__file__).resolve().parents[2] / "transcripts" / "answers"
TRANSCRIPTS = sorted(DIRECTORY.glob("*.txt"))


VERSION = "0.1.0"
"""Of clients in transcripts: their ApiVersions requests say it, and a release changes no transcript."""


@pytest.fixture(autouse=True)
def _same_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "__version__", VERSION)


def played(text: str) -> str:
    settings = settings_of(text)
    brokers = int(settings.pop("brokers", "1"))

    async def scenario(sim: Simulation) -> str:
        async with Admin(bootstrap_servers=sim.bootstrap_servers, client_id="c") as admin:
            return await Conversation(sim, admin).play(text)

    return str(simulate(scenario, 7, brokers=brokers, settings=settings).result)


def test_there_are_transcripts_of_answers() -> None:
    assert len(TRANSCRIPTS) >= 8


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_requests_are_answered_as_in_the_transcript(path: Path) -> None:
    before = path.read_text()
    after = played(before)
    if os.environ.get("UPDATE_TRANSCRIPTS"):
        path.write_text(after)
    else:
        assert after == before
