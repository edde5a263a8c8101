"""A network of network namespaces, one for each broker, whose paths can be cut silently and one way.

The process enters a network and a mount namespace of its own first, with `unshare`, so that nothing outside sees the
addresses, and the kernel removes all of it with the last process. Clients live in that one, on a bridge; the metadata
store and each broker live in others, each at the end of a cable. To cut a path, its sender learns a link address for
the receiver that no card has: the packets leave and arrive nowhere, and nothing breaks by itself.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from typing import Final

CLIENTS: Final = "10.77.0.1"
"""Where clients connect from."""
STORE: Final = "10.77.0.2"
"""Where brokers reach the metadata store."""
_NOWHERE: Final = "02:00:00:00:00:01"
_ENTERED: Final = "ODRADEK_FAULTS_NAMESPACE"
_SLOW: Final = ("tbf", "rate", "2mbit", "burst", "32kbit", "latency", "2000ms")
_DELAYED: Final = ("netem", "delay", "150ms", "50ms", "loss", "1%")


def _quietly(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


class NetworkError(Exception):
    """A command that makes or changes the network failed; says which and why."""


def unavailable() -> str:
    """Why namespaces cannot be made here; empty if they can."""
    if os.geteuid() != 0:
        return "it takes root"
    missing = [name for name in ("ip", "tc", "unshare") if not shutil.which(name)]
    if missing:
        return f"{missing[0]} is not installed"
    made = _quietly("unshare", "--net", "--mount", "ip", "link", "add", "bridge0", "type", "bridge")
    return "" if made.returncode == 0 else f"the kernel makes none: {made.stderr.strip()}"


def is_entered() -> bool:
    """Whether `enter` started this process."""
    return os.environ.get(_ENTERED) == str(os.getpid())


def enter(arguments: Sequence[str]) -> None:
    """Run this Python with the arguments in a network and a mount namespace of its own, in place of this process."""
    os.environ[_ENTERED] = str(os.getpid())  # `unshare` runs it under the same number
    command = ["unshare", "--net", "--mount", "--propagation", "private", sys.executable, *arguments]
    os.execvp(command[0], command)


def _run(*command: str) -> None:
    done = _quietly(*command)
    if done.returncode:
        raise NetworkError(f"{' '.join(command)}: {done.stderr.strip()}")


class Namespaces:
    """The network of brokers 1 to N. Raises NetworkError."""

    def __init__(self, brokers: int) -> None:
        self._names = {"store": STORE, **{f"broker{n}": self.address(n) for n in range(1, brokers + 1)}}
        self._cuts: set[tuple[str, str]] = set()
        self._slow: set[int] = set()
        self.slow_links = ""
        """How links are slowed: `delayed` by netem, `narrow` by tbf where there is no netem, empty without both."""

    def start(self) -> None:
        """Make the bridge, the brokers' namespaces and the cables."""
        # `ip netns` keeps names here: a file system of this mount namespace, so that no name stays behind.
        _run("mount", "-t", "tmpfs", "tmpfs", "/run")
        os.mkdir("/run/netns")
        _run("ip", "link", "set", "lo", "up")
        _run("ip", "link", "add", "bridge0", "type", "bridge")
        _run("ip", "address", "add", f"{CLIENTS}/24", "dev", "bridge0")
        _run("ip", "link", "set", "bridge0", "up")
        for name, address in self._names.items():
            _run("ip", "netns", "add", name)
            _run("ip", "link", "add", f"cable-{name}", "type", "veth", "peer", "name", "eth0", "netns", name)
            _run("ip", "link", "set", f"cable-{name}", "master", "bridge0", "up")
            _run("ip", "-n", name, "address", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _run("ip", "-n", name, "link", "set", device, "up")
        self.slow_links = self._find_slow()

    def _find_slow(self) -> str:
        for kind, discipline in (("delayed", _DELAYED), ("narrow", _SLOW)):
            if _quietly(*self._tc(1), "add", *self._root(), *discipline).returncode == 0:
                _run(*self._tc(1), "del", *self._root())
                return kind
        return ""

    def _tc(self, broker: int) -> list[str]:
        return ["tc", "-n", f"broker{broker}", "qdisc"]

    @staticmethod
    def _root() -> list[str]:
        return ["dev", "eth0", "root"]

    @staticmethod
    def address(broker: int) -> str:
        """Where a broker listens."""
        return f"10.77.0.{10 + broker}"

    @staticmethod
    def prefix(name: str) -> tuple[str, ...]:
        """What runs a command in a namespace: `broker1` to `brokerN`, `store`."""
        return ("ip", "netns", "exec", name)

    def _neighbours(self, sender: str) -> tuple[list[str], str]:
        """The command that changes them in the sender's namespace, and the device that it sends by."""
        name = next((name for name, address in self._names.items() if address == sender), None)
        return (["ip", "neigh"], "bridge0") if name is None else (["ip", "-n", name, "neigh"], "eth0")

    def cut(self, sender: str, receiver: str) -> None:
        """Packets from one address to another vanish from now on."""
        command, device = self._neighbours(sender)
        _run(*command, "replace", receiver, "lladdr", _NOWHERE, "dev", device, "nud", "permanent")
        self._cuts.add((sender, receiver))

    def cut_both(self, one: str, other: str) -> None:
        """Packets between two addresses vanish in both directions."""
        self.cut(one, other)
        self.cut(other, one)

    def slow(self, broker: int) -> None:
        """All that a broker sends is slow."""
        if self.slow_links:
            discipline = _DELAYED if self.slow_links == "delayed" else _SLOW
            _run(*self._tc(broker), "replace", *self._root(), *discipline)
            self._slow.add(broker)

    def heal(self) -> None:
        """Every path carries again; what the kernels hold back, they send again in their own time."""
        for sender, receiver in sorted(self._cuts):
            command, device = self._neighbours(sender)
            _run(*command, "del", receiver, "dev", device)
        self._cuts.clear()
        for broker in sorted(self._slow):
            _run(*self._tc(broker), "del", *self._root())
        self._slow.clear()
