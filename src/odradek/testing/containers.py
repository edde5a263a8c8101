"""A stand-in for the class KafkaContainer of testcontainers, without containers: a process that starts in 0.2 s.

Only the import changes: `from odradek.testing.containers import KafkaContainer`.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Final, Self

from odradek.testing.blocking import BlockingBroker
from odradek.testing.broker import Broker

_PREFIX: Final = "KAFKA_"
_OF_CONTAINERS: Final = frozenset(
    (
        *("listeners", "advertised.listeners", "listener.security.protocol.map", "inter.broker.listener.name"),
        *("log.dirs", "process.roles", "node.id", "broker.id", "controller.listener.names", "controller.quorum.voters"),
        *("zookeeper.connect", "heap.opts", "jvm.performance.opts", "cluster.id"),
    )
)
"""Settings of a container's network, file system and JVM, which this broker has not."""


class KafkaContainer:
    """Methods of testcontainers' class. What concerns images and Docker is accepted and has no effect."""

    def __init__(self, image: str = "", port: int = 9093, **_: Any) -> None:
        """`port` is the one that `get_exposed_port` is asked for; the broker's own port is free and differs."""
        self.image = image
        self.port = port
        self.env: dict[str, str] = {}
        self._broker: BlockingBroker | None = None
        self._cluster_id: str | None = None
        self._host_port = 0

    def with_env(self, key: str, value: str) -> Self:
        """Set a broker setting by the name that Kafka's images have for it: KAFKA_NUM_PARTITIONS is num.partitions."""
        self.env[key] = value
        return self

    def with_envs(self, **values: str) -> Self:
        """As `with_env`, several at once."""
        self.env.update(values)
        return self

    def with_kraft(self) -> Self:
        """No effect: there is no ZooKeeper either way."""
        return self

    def with_cluster_id(self, cluster_id: str) -> Self:
        """The id of the broker's cluster; without it CLUSTER_ID of the environment, or one that the broker makes."""
        self._cluster_id = cluster_id
        return self

    def with_bind_ports(self, container: int | str, host: int | str | None = None) -> Self:
        """Have clients connect to the port `host` of 127.0.0.1; None for a free one.

        LookupError for a `container` other than the `port` of the constructor.
        """
        self._check_port(int(str(container).removesuffix("/tcp")))
        self._host_port = int(host or 0)
        return self

    def with_exposed_ports(self, *_: int | str) -> Self:
        """No effect: the broker's port is on 127.0.0.1."""
        return self

    def with_name(self, _: str) -> Self:
        """No effect: there is no container."""
        return self

    def with_network(self, _: Any) -> Self:
        """No effect: the broker is a process on 127.0.0.1."""
        return self

    def with_network_aliases(self, *_: str) -> Self:
        """No effect: the broker is a process on 127.0.0.1."""
        return self

    def with_kwargs(self, **_: Any) -> Self:
        """No effect: these are arguments of Docker."""
        return self

    def start(self, timeout: float = 30) -> Self:
        """Start the broker; returns when it serves.

        Raises BrokerFailed, which is a TimeoutError if the broker does not serve within `timeout` seconds.
        """
        settings = {_setting(name): value for name, value in self.env.items() if name.startswith(_PREFIX)}
        wrapped = Broker(
            {name: value for name, value in settings.items() if name not in _OF_CONTAINERS},
            cluster_id=self._cluster_id or self.env.get("CLUSTER_ID") or settings.get("cluster.id"),
        )
        wrapped.port = self._host_port
        broker = BlockingBroker(broker=wrapped)
        try:
            broker.start(timeout)
        except BaseException:
            broker.close()
            raise
        self._broker = broker
        return self

    def stop(self, *_: bool, **__: bool) -> None:
        """Stop the broker and remove its data, whatever `force` and `delete_volume` are."""
        if self._broker is not None:
            self._broker.close()
            self._broker = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def broker(self) -> BlockingBroker:
        """The broker, for what testcontainers has no method. RuntimeError unless it was started."""
        if self._broker is None:
            raise RuntimeError("start() was not called")
        return self._broker

    def get_bootstrap_server(self) -> str:
        """HOST:PORT for clients. RuntimeError unless it was started."""
        return self.broker.bootstrap_servers

    def get_container_host_ip(self) -> str:
        """The host that clients connect to."""
        return "127.0.0.1"

    def get_exposed_port(self, port: int) -> int:
        """The broker's port for the `port` of the constructor. LookupError for another one."""
        self._check_port(port)
        return self.broker.port

    def get_logs(self) -> tuple[bytes, bytes]:
        """(standard output, standard error), of which the broker has the second."""
        return b"", self.broker.log().encode()

    def _check_port(self, port: int) -> None:
        if port != self.port:
            raise LookupError(f"port {port} is not exposed; {self.port} is")


def _setting(variable: str) -> str:
    """Kafka's images take `__` for `_`, `___` for `-`, and `_` for a full stop."""
    name = variable.removeprefix(_PREFIX).lower()
    return name.replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")
