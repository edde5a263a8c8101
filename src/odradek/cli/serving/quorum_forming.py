"""`odradek serve --quorum HOST1,HOST2,HOST3`: the first start of a node, until its directory is formatted.

The first node of the list forms the cluster, and only after every other node has answered that it has the same list and
no cluster. The others learn the cluster's id from a node that has one, and join its voters. A node without a formatted
directory answers these questions on its controller's address until it has one. See decision 0019.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from odradek.broker.cluster.peers import PeerLimits
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.configuration.quorum_addresses import controller_listener
from odradek.broker.configuration.refusals import SASL_PROTOCOLS, TLS_PROTOCOLS
from odradek.broker.kraft.broker_logins import TO_CONTROLLERS, broker_login
from odradek.broker.kraft.controllers import Controllers
from odradek.broker.network.tls_listeners import TlsListeners
from odradek.broker.ports import Ports
from odradek.broker.storage.formatting import (
    FormatRequest,
    UnfitDirectories,
    format_directories,
    is_formatted,
    new_cluster_id,
    plan_format,
)
from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.client.errors import TransportError
from odradek.kraft.metadata_observer import Server
from odradek.kraft.raft.formation import Formation, FoundNode, decide_formation
from odradek.wire.apis import ApiKey
from odradek.wire.errors import ErrorCode, KafkaError
from odradek.wire.headers import encode_response_header, parse_request_header
from odradek.wire.messages.api_versions import ApiVersionsResponse, ApiVersionsResponseApiVersion
from odradek.wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeClusterResponseBroker,
)
from odradek.wire.primitives import DecodeError

logger = logging.getLogger("odradek.serve")

DEFAULT_PORT: Final = 9092
_REPLICAS: Final = 3
_ROUND_SECONDS: Final = 0.5
_REMIND_SECONDS: Final = 10.0
_ASK_MS: Final = 2_000
_LARGEST_QUESTION: Final = 1 << 16
_CONTROLLERS: Final = 2
"""The type of endpoints in DescribeCluster (KIP-919)."""
_LOOPBACK: Final = ("localhost", "127.")


class Listed(NamedTuple):
    """A node of the list. Its controller listens on the port after that of clients."""

    node_id: int
    host: str
    port: int

    @property
    def controller(self) -> Server:
        """Where its controller is reached."""
        return Server(self.host, self.port + 1)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class _Answer(NamedTuple):
    """What another node says. `cluster_id` is empty while it has no cluster; then `nodes` is its list."""

    cluster_id: str
    nodes: tuple[tuple[int, str, int], ...]


def parse_quorum(text: str) -> list[Listed]:
    """The nodes of HOST1,HOST2:PORT,…; their ids count from 1. Raises UsageError."""
    found: list[Listed] = []
    for part in (each.strip() for each in text.split(",")):
        host, colon, port = part.rpartition(":")
        if not colon or part.endswith("]"):
            host, port = part, str(DEFAULT_PORT)
        if not host or not port.isdecimal() or not 0 < int(port) < 65535:
            raise UsageError(f"--quorum: {part!r} is not HOST or HOST:PORT")
        listed = Listed(len(found) + 1, host.strip("[]"), int(port))
        ports = {listed.port, listed.controller.port}
        if any(each.host == listed.host and ports & {each.port, each.controller.port} for each in found):
            raise UsageError(f"--quorum: {part} is named twice, or its two ports overlap with those of another node")
        found.append(listed)
    return found


def own_node(nodes: Sequence[Listed], listen: str | None) -> Listed:
    """The node that this process is: the one of `--listen`, else the only one on this machine. Raises UsageError."""
    if listen is not None:
        named = [each for each in nodes if str(each) == listen]
        if not named:
            raise UsageError(f"--listen {listen} is not among the nodes of --quorum, which it chooses from")
        return named[0]
    local = [each for each in nodes if _is_local(each.host)]
    if len(local) != 1:
        reason = "several nodes of --quorum are" if local else "no node of --quorum is"
        raise UsageError(f"{reason} on this machine: name this one with --listen HOST:PORT")
    return local[0]


def _is_local(host: str) -> bool:
    """Whether a socket of this machine can have the address."""
    try:
        addresses = socket.getaddrinfo(host, 0, type=socket.SOCK_DGRAM)
    except OSError:
        return False
    for family, kind, protocol, _name, address in addresses:
        with socket.socket(family, kind, protocol) as probe:
            try:
                probe.bind(address)
            except OSError:
                continue
            return True
    return False


def settings_of_node(nodes: Sequence[Listed], own: Listed) -> dict[str, str]:
    """The settings of this node, which others of the command line may replace."""

    def address(host: str, port: int) -> str:
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    bound = own.host if own.host.startswith(_LOOPBACK) or own.host == "::1" else ""
    copies = min(len(nodes), _REPLICAS)
    in_sync = "2" if copies == _REPLICAS else "1"
    controllers = [address(*each.controller) for each in nodes]
    return {
        "process.roles": "broker,controller",
        "node.id": str(own.node_id),
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": ",".join(controllers),
        "controller.quorum.auto.join.enable": "true",
        "listeners": f"PLAINTEXT://{address(bound, own.port)},CONTROLLER://{address(bound, own.controller.port)}",
        "advertised.listeners": f"PLAINTEXT://{address(own.host, own.port)},CONTROLLER://{address(*own.controller)}",
        "default.replication.factor": str(copies),
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": str(copies),
        "transaction.state.log.replication.factor": str(copies),
        "transaction.state.log.min.isr": in_sync,
    }


async def form_or_join(config: BrokerConfig, nodes: Sequence[Listed], own: Listed, stop: asyncio.Event) -> bool:
    """Wait until this node's directory is formatted; false if `stop` is set before. Raises CommandError."""
    ports = Ports()
    try:
        if is_formatted(config, ports.disk):
            return True
    except UnfitDirectories as error:
        raise CommandError(f"{error}: use another --data-dir") from error
    loop = asyncio.get_running_loop()
    forming = loop.create_task(Forming(config, ports, nodes, own).run())
    stopping = loop.create_task(stop.wait())
    await asyncio.wait((forming, stopping), return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if forming.done():
        forming.result()
        return not stop.is_set()
    forming.cancel()
    await asyncio.wait((forming,))
    return False


class Forming:
    """One node without a formatted directory: it answers the others, asks them, and formats its directory."""

    def __init__(self, config: BrokerConfig, ports: Ports, nodes: Sequence[Listed], own: Listed) -> None:
        self._config = config
        self._ports = ports
        self._nodes = nodes
        self._own = own
        self._list = tuple((each.node_id, *each.controller) for each in nodes)
        self._connections: set[asyncio.StreamWriter] = set()

    async def run(self) -> None:
        """Raises CommandError."""
        config = self._config
        name, protocol = controller_listener(config)
        if protocol in SASL_PROTOCOLS:
            raise CommandError(
                f"--quorum: nodes cannot log in at each other's {name} listeners before they have a cluster; format "
                "the directories with `odradek storage format` in place of --quorum"
            )
        listener = next(each for each in config.all_listeners() if each.name == name)
        tls = TlsListeners(config, [name] if protocol in TLS_PROTOCOLS else [], self._ports.clock)
        context = tls.server_context(name)
        try:
            server = await asyncio.start_server(self._serve, listener.host or None, listener.port, ssl=context)
        except OSError as error:
            raise CommandError(
                f"cannot listen on {listener.host}:{listener.port}: {error.strerror or error}"
            ) from error
        prove = broker_login(config, self._ports.random, name, TO_CONTROLLERS)
        limits, secure = PeerLimits.of(config), tls.connector(name)
        controllers = Controllers(self._ports.network, self._own.node_id, secure, prove, limits)
        try:
            request = await self._find_cluster(controllers)
        finally:
            controllers.close()
            server.close()
            for connection in list(self._connections):
                connection.close()  # the other nodes ask the controller that listens here next
        ports = self._ports
        try:
            plan = plan_format(config, ports.disk, ports.clock, ports.random, request)
            for path in format_directories(ports.disk, plan):
                logger.info("formatted %s for node %d of cluster %s", path, self._own.node_id, request.cluster_id)
        except (ValueError, UnfitDirectories, OSError) as error:
            raise CommandError(f"the directory cannot be formatted: {error}") from error

    async def _find_cluster(self, controllers: Controllers) -> FormatRequest:
        """How to format: as a node of the cluster that another node has, or as the first of a new one."""
        others = [each for each in self._nodes if each != self._own]
        reminded = -_REMIND_SECONDS
        while True:
            answers = dict(
                zip(others, await asyncio.gather(*(self._ask(controllers, each) for each in others)), strict=True)
            )
            clusters = {each.cluster_id for each in answers.values() if each is not None and each.cluster_id}
            if len(clusters) > 1:
                raise CommandError(f"nodes of --quorum are of several clusters: {', '.join(sorted(clusters))}")
            found = [None if each is None else FoundNode(each.cluster_id or None) for each in answers.values()]
            decision = decide_formation(self._nodes.index(self._own), found)
            if decision is Formation.JOIN:
                return FormatRequest(clusters.pop(), has_no_initial_controllers=True)
            for node, answer in answers.items():
                if answer is not None and answer.nodes != self._list:
                    raise CommandError(
                        f"{node} was started with another --quorum: the lists must be the same, in order"
                    )
            if decision is Formation.FORM:
                return FormatRequest(new_cluster_id(self._ports.random), is_standalone=True)
            silent = [str(each) for each, answer in answers.items() if answer is None]
            if self._ports.clock.monotonic() - reminded >= _REMIND_SECONDS:
                reminded = self._ports.clock.monotonic()
                logger.info("waiting for %s", self._awaited(silent))
            await asyncio.sleep(_ROUND_SECONDS)

    def _awaited(self, silent: Sequence[str]) -> str:
        if self._own == self._nodes[0]:
            return f"an answer of {', '.join(silent)}: a new cluster is formed when all nodes of --quorum run"
        return f"{self._nodes[0]} to form the cluster, or for a node that has one"

    async def _ask(self, controllers: Controllers, node: Listed) -> _Answer | None:
        """None where the node does not answer, or not as a controller."""
        request = DescribeClusterRequest(endpoint_type=_CONTROLLERS)
        try:
            answer = await controllers.fetch(node.controller, request, DescribeClusterResponse, _ASK_MS)
        except (TransportError, KafkaError):
            return None
        if answer.error_code:
            return None
        return _Answer(answer.cluster_id, tuple((each.broker_id, each.host, each.port) for each in answer.brokers))

    # --- answers ---

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer ApiVersions and DescribeCluster; other requests end the connection: the sender tries again later."""
        self._connections.add(writer)
        try:
            while True:
                (size,) = struct.unpack(">I", await reader.readexactly(4))
                if size > _LARGEST_QUESTION:
                    break
                answer = self._answer(memoryview(await reader.readexactly(size)))
                if answer is None:
                    break
                writer.write(struct.pack(">I", len(answer)) + answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError, DecodeError):
            pass  # the other node asks again
        finally:
            self._connections.discard(writer)
            writer.close()

    def _answer(self, frame: memoryview) -> bytes | None:
        key, version, correlation_id, _client_id, _position = parse_request_header(frame)
        message: Any
        if key == ApiKey.API_VERSIONS:
            known = version <= ApiVersionsResponse.MAX_VERSION
            served: list[tuple[int, Any]] = [
                (ApiKey.API_VERSIONS, ApiVersionsResponse),
                (ApiKey.DESCRIBE_CLUSTER, DescribeClusterResponse),
            ]
            message = ApiVersionsResponse(
                error_code=ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_VERSION,
                api_keys=[
                    ApiVersionsResponseApiVersion(each, kind.MIN_VERSION, kind.MAX_VERSION) for each, kind in served
                ],
            )
            version = version if known else 0
        elif key == ApiKey.DESCRIBE_CLUSTER and version <= DescribeClusterResponse.MAX_VERSION:
            brokers = [DescribeClusterResponseBroker(*each) for each in self._list]
            message = DescribeClusterResponse(endpoint_type=_CONTROLLERS, controller_id=-1, brokers=brokers)
        else:
            return None
        out = bytearray()
        encode_response_header(out, key, version, correlation_id)
        message.encode(out, version)
        return bytes(out)
