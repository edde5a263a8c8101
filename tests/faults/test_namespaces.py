"""The network of namespaces: cuts drop silently, in one direction, and end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults import namespaces

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = """
import socket, subprocess, sys, threading
from tests.faults.namespaces import CLIENTS, Namespaces

network = Namespaces(2)
network.start()
PROBE = (
    "import socket, sys\\n"
    "connection = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\\n"
    "connection.bind((sys.argv[1], 7000))\\n"
    "print('bound', flush=True)\\n"
    "while True:\\n"
    "    data, sender = connection.recvfrom(100)\\n"
    "    connection.sendto(data + b' answered', sender)\\n"
)
servers = []
for broker in (1, 2):
    command = [*network.prefix(f"broker{broker}"), sys.executable, "-c", PROBE, network.address(broker)]
    servers.append(subprocess.Popen(command, stdout=subprocess.PIPE))
    servers[-1].stdout.readline()
client = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
client.bind((CLIENTS, 0))
client.settimeout(20)
client.connect((network.address(1), 7000))
number = 0

def answered(wait=20):
    global number
    number += 1
    client.settimeout(wait)
    client.send(str(number).encode())
    try:
        while client.recv(100) != f"{number} answered".encode():
            pass
    except TimeoutError:
        return False
    return True

assert answered()
for cut in ((CLIENTS, network.address(1)), (network.address(1), CLIENTS)):
    network.cut(*cut)
    assert not answered(0.2), cut
    client.connect((network.address(2), 7000))
    assert answered(), "another path was cut"
    client.connect((network.address(1), 7000))
    network.heal()
    assert answered(), cut
network.slow(1)
assert answered()
network.heal()
for server in servers:
    server.kill()
print("passed", network.slow_links)
"""


@pytest.mark.skipif(bool(namespaces.unavailable()), reason=f"no network namespaces: {namespaces.unavailable()}")
def test_cuts_drop_silently_in_one_direction_until_healed() -> None:
    command = ["unshare", "--net", "--mount", "--propagation", "private", sys.executable, "-c", SCRIPT]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.startswith("passed"), done.stdout + done.stderr


def test_namespaces_are_unavailable_without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert namespaces.unavailable() == "it takes root"


def test_namespaces_are_unavailable_without_iproute2(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("shutil.which", lambda name: None if name == "ip" else f"/bin/{name}")
    assert namespaces.unavailable() == "ip is not installed"
