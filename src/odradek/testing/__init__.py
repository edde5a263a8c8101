"""Testing with real brokers: child processes, clusters, faults, pytest fixtures, and simulation of a whole application.

    async with Broker() as broker:
        await broker.topic("orders", partitions=3)
        ...
        assert len(await broker.records("orders")) == 3

`docs/TESTING.md` explains all of it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from odradek.testing.blocking import BlockingBroker, BlockingCluster
    from odradek.testing.broker import Broker
    from odradek.testing.child_process import BrokerFailed, BrokerTimedOut
    from odradek.testing.cluster import Cluster
    from odradek.testing.links import Link
    from odradek.testing.recording import Recording, record
    from odradek.testing.simulation import Simulation, SimulationFailed, search, simulate
    from odradek.testing.waiting import eventually

__all__ = [
    "BlockingBroker",
    "BlockingCluster",
    "Broker",
    "BrokerFailed",
    "BrokerTimedOut",
    "Cluster",
    "Link",
    "Recording",
    "Simulation",
    "SimulationFailed",
    "eventually",
    "record",
    "search",
    "simulate",
]

_MODULES: Final = {
    "BlockingBroker": "blocking",
    "BlockingCluster": "blocking",
    "Broker": "broker",
    "BrokerFailed": "child_process",
    "BrokerTimedOut": "child_process",
    "Cluster": "cluster",
    "Link": "links",
    "Recording": "recording",
    "Simulation": "simulation",
    "SimulationFailed": "simulation",
    "eventually": "waiting",
    "record": "recording",
    "search": "simulation",
    "simulate": "simulation",
}


def __getattr__(name: str) -> Any:
    # The child process imports this package, too, and must start as fast as a broker of the command line.
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{module}"), name)
