"""The walk of docs/SECURITY.md from an empty folder to mTLS, SCRAM and ACLs: its commands, as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from bench.peers.broker import first_line
from tests.newcomer.pages import Page

SECTIONS = Page("docs/SECURITY.md").sections()
SECONDS = 120


def blocks(section: str) -> list[str]:
    """The fenced blocks of a section."""
    found = re.findall(r"^   ```\n(.*?)^   ```$", SECTIONS[section], re.MULTILINE | re.DOTALL)
    return [textwrap.dedent(each) for each in found]


def free_ports() -> tuple[int, int]:
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        return one.getsockname()[1], two.getsockname()[1]


def test_page_leads_from_nothing_to_mtls_scram_and_acls(tmp_path: Path) -> None:
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here")
    programs = str(Path(sys.executable).parent)
    around = {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    mtls, passwords = free_ports()

    def run(commands: str) -> str:
        here = commands.replace(":9093", f":{mtls}").replace(":9094", f":{passwords}")
        done = subprocess.run(
            ["sh", "-eu", "-c", here],
            cwd=tmp_path, env=around, capture_output=True, text=True, timeout=SECONDS, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{here}\n{done.stdout}{done.stderr}"
        return done.stdout

    certificate, prepare, administrate, use = blocks("From nothing to mTLS, SCRAM and ACLs")
    run(blocks("TLS in ten minutes")[0])
    run(certificate)
    run(prepare)
    log = tmp_path / "broker.log"
    with log.open("wb") as errors:
        broker = subprocess.Popen(
            [f"{programs}/odradek", "serve", "server.properties"],
            cwd=tmp_path, env=around, stdout=subprocess.PIPE, stderr=errors,
        )  # fmt: skip
    try:
        assert first_line(broker, SECONDS).startswith("odradek ready")
        run(administrate)
        shown = run(use)
        assert "hello" in shown
        assert "is allowed" in shown, shown
        alone = "-b 127.0.0.1:9094 --command-config alice.properties"
        with pytest.raises(AssertionError, match=r"TOPIC_AUTHORIZATION_FAILED|(?i:not authorized)"):
            run(f"echo no | odradek produce orders {alone}")
        assert "INFO kafka.authorizer.logger: Principal = User:alice is Denied operation = " in log.read_text()
        with pytest.raises(AssertionError, match="no ACL for the resource allows it"):
            run(
                "odradek acls explain User:alice write topic:orders -b 127.0.0.1:9094 --command-config admin.properties"
            )
        with pytest.raises(AssertionError, match=r"certificate|closed"):
            run("odradek topics --list -b 127.0.0.1:9093 --command-config alice.properties --timeout 3000")
    finally:
        broker.terminate()
        broker.wait(SECONDS)
        assert broker.stdout is not None
        broker.stdout.close()
