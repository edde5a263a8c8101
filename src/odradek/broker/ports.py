"""The ports of one broker, together."""

from __future__ import annotations

from odradek.ports.clock import Clock, SystemClock
from odradek.ports.disk import Disk, SystemDisk
from odradek.ports.network import Network, TcpNetwork
from odradek.ports.process import Process, SystemProcess
from odradek.ports.randomness import Random, SystemRandom
from odradek.ports.store import MetadataStore


class Ports:
    """The ports through which a broker reaches the world; those of the machine by default."""

    __slots__ = ("clock", "disk", "network", "process", "random", "store")

    def __init__(
        self,
        clock: Clock | None = None,
        disk: Disk | None = None,
        network: Network | None = None,
        random: Random | None = None,
        store: MetadataStore | None = None,
        process: Process | None = None,
    ) -> None:
        self.clock = clock or SystemClock()
        """Time."""
        self.disk = disk or SystemDisk()
        """Files."""
        self.network = network or TcpNetwork()
        """Connections."""
        self.random = random or SystemRandom()
        """Chance."""
        self.process = process or SystemProcess()
        """Processor time and memory of this process."""
        self.store = store
        """The metadata store; None to open the one that the configuration names."""
