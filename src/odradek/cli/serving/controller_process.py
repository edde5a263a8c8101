"""`odradek serve` for a controller of a KRaft quorum (`process.roles=controller`)."""

from __future__ import annotations

import asyncio
import os
import sys

from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.quorum.controller_node import ControllerNode
from odradek.broker.start_error import StartError
from odradek.cli.serving.garbage import LateCollections, collect_in_small_steps
from odradek.cli.serving.process_life import allow_most_files, end, until_end
from odradek.cli.serving.service_manager import ServiceManager
from odradek.ports.clock import process_age


async def serve_controller(config: BrokerConfig, stop: asyncio.Event) -> int:
    """Serve until `stop` is set; the exit status: 1 where the metadata log failed, 2 for a wrong configuration."""
    manager = ServiceManager.from_environment(os.environ)
    manager.status("starting")
    allow_most_files()
    collect_in_small_steps()
    node = ControllerNode(config)
    loop = asyncio.get_running_loop()
    try:
        await node.start()
    except StartError as error:
        print(f"odradek serve: {error}", file=sys.stderr)
        return 2 if error.misconfigured else 1
    print(f"odradek ready controller={node.bound} pid={os.getpid()} seconds={process_age():.2f}", flush=True)
    manager.ready(f"controller {config.node_id} serves on {node.bound}")
    collections = LateCollections(loop)
    alive = loop.create_task(manager.keep_alive())
    await until_end(stop, node)
    collections.close()
    status = await end(node, manager, "handing the leadership of the quorum over")
    alive.cancel()
    return status
