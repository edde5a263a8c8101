"""A stand-in for the class KafkaContainer of testcontainers, without containers: a process that starts in 0.2 s.

Only the import changes: `from odradek.testing.containers import KafkaContainer`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn, Self

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

_SECURED: Final = frozenset(("SSL", "SASL_PLAINTEXT", "SASL_SSL"))
"""Names of listeners that Kafka maps to the protocol of that name, without a map of one's own."""

_DATA_FOLDERS: Final = frozenset(("/var/lib/kafka/data", "/var/lib/kafka/data/"))
"""Where Confluent's images keep the logs of partitions."""


class KafkaContainer:
    """Methods of testcontainers' class. What concerns images and Docker is accepted and has no effect.

    ValueError where TLS or SASL is asked for, as this broker would not ask for it: `odradek serve` does.
    """

    def __init__(self, image: str = "", port: int = 9093, *, security_protocol: str = "PLAINTEXT", **_: Any) -> None:
        """`port` is the one that `get_exposed_port` is asked for; the broker's own port is free and differs."""
        _check_protocols(security_protocol)
        self.image = image
        self.port = port
        self.env: dict[str, str] = {}
        self._broker: BlockingBroker | None = None
        self._cluster_id: str | None = None
        self._folder: Path | None = None
        self._host_port = 0

    def with_env(self, key: str, value: str) -> Self:
        """Set a broker setting by the name that Kafka's images have for it: KAFKA_NUM_PARTITIONS is num.partitions."""
        self.env[key] = value
        return self

    def with_envs(self, **values: str) -> Self:
        """As `with_env`, several at once."""
        self.env.update(values)
        return self

    def with_env_file(self, env_file: str | os.PathLike[str]) -> Self:
        """As `with_env` for each line NAME=VALUE of a file, without empty lines and those that begin with #.

        OSError if it cannot be read, ValueError for another line.
        """
        for number, line in enumerate(Path(env_file).read_text(encoding="utf-8").splitlines(), 1):
            if not line.strip() or line.lstrip().startswith("#"):
                continue
            name, separator, value = line.partition("=")
            if not separator:
                raise ValueError(f"{os.fspath(env_file)}:{number}: NAME=VALUE expected, not {line!r}")
            self.env[name.removeprefix("export ").strip()] = _unquoted(value.strip())
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

    def with_volume_mapping(self, host: str | os.PathLike[str], container: str, mode: str = "ro") -> Self:
        """Keep the data in the folder `host`, which outlives the broker, if `container` is where images keep it.

        No effect for other folders of a container. ValueError for data with a `mode` other than rw.
        """
        if container in _DATA_FOLDERS or container == self.env.get("KAFKA_LOG_DIRS"):
            if mode != "rw":
                raise ValueError(f"the broker has to write to {os.fspath(host)}: mode rw expected, not {mode}")
            self._folder = Path(host)
        return self

    def with_tmpfs_mount(self, *_: str | None, **__: str | None) -> Self:
        """No effect: the data are in a temporary folder."""
        return self

    def with_command(self, _: str | list[str]) -> Self:
        """No effect: there is no image whose command could be another one."""
        return self

    def waiting_for(self, _: object) -> Self:
        """No effect: `start` returns when the broker serves."""
        return self

    def maybe_emulate_amd64(self) -> Self:
        """No effect: there is no image."""
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
        _check_protocols(*_protocols(settings))
        wrapped = Broker(
            {name: value for name, value in settings.items() if name not in _OF_CONTAINERS},
            folder=self._folder,
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

    @property
    def status(self) -> str:
        """ "not_started" or "running"."""
        return "not_started" if self._broker is None else "running"

    def exec(self, command: str | list[str]) -> NoReturn:
        """NotImplementedError: there is no container with a shell and Kafka's tools. `broker` has what tests do."""
        raise NotImplementedError(f"there is no container to run {command} in; see KafkaContainer.broker")

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


def _protocols(settings: dict[str, str]) -> Iterator[str]:
    """The security protocols of the listeners: those of the map, and names of listeners that are protocols' own."""
    mapped = settings.get("listener.security.protocol.map", "")
    for each in filter(None, mapped.split(",")):
        yield each.rpartition(":")[2]
    for each in () if mapped else settings.get("listeners", "").split(","):
        name = each.partition("://")[0].strip().upper()
        if name in _SECURED:
            yield name


def _check_protocols(*names: str) -> None:
    for name in names:
        if name.strip().upper() != "PLAINTEXT":
            raise ValueError(f"this broker has a listener without TLS and SASL, not {name.strip()}")


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'" else value
