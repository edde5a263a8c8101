"""The ports of clients whose constructors are given none: the machine's, or those of a simulated process."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final, NamedTuple

from odradek.ports.clock import Clock, SystemClock
from odradek.ports.network import Network, TcpNetwork
from odradek.ports.randomness import Random, SystemRandom


class Surroundings(NamedTuple):
    """Ports that clients share."""

    network: Network
    clock: Clock
    random: Random


_SIMULATED: Final[ContextVar[Surroundings | None]] = ContextVar("surroundings", default=None)


def surroundings() -> Surroundings:
    """Those of the simulated process that calls, else the machine's."""
    return _SIMULATED.get() or Surroundings(TcpNetwork(), SystemClock(), SystemRandom())


def simulate_surroundings(simulated: Surroundings) -> None:
    """Give them to all clients that the current context makes: an application makes its clients as everywhere else."""
    _SIMULATED.set(simulated)
