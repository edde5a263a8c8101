"""What the console is started with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final

from odradek.console.messages.masks import Masks
from odradek.console.messages.schemas import Schemas

LOGIN_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""SASL mechanisms with user name and password."""
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


DEAD_LETTERS: Final = ("*dlq*", "*dlt", "*dead-letter*", "*dead_letter*", "*deadletter*")
"""Names that Spark's, Connect's and Spring's users give such topics."""


class SettingsError(Exception):
    """A combination of settings that the console does not accept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleSettings:
    """Settings of a console."""

    clusters: Mapping[str, Mapping[str, Any]]
    """Client options by the name of the cluster, the first one is shown first."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8080
    """Port to listen on; 0 picks a free one."""
    allow_changes: bool = False
    """Whether the pages may change clusters."""
    login: bool = False
    """Whether each person logs in as a user of the cluster."""
    allow_anonymous: bool = False
    """Whether everyone who reaches the address may use the console, beyond loopback."""
    hosts: frozenset[str] = frozenset()
    """Names by which browsers may call this console, beside its address."""
    idle_s: float = 30 * 60.0
    """Seconds without a request after which a login ends."""
    sample_s: float = 10.0
    """Least seconds between two samples of a cluster's offsets and sizes."""
    masks: Masks = field(default_factory=Masks)
    """What is hidden in records."""
    schemas: Schemas = field(default_factory=Schemas)
    """What keys and values are decoded by."""
    dead_letters: tuple[str, ...] = DEAD_LETTERS
    """Patterns of topics of dead letters, with * and ?, without regard to case."""
    metrics: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """URLs of the metrics of brokers by the name of the cluster."""
    audit_log: str | None = None
    """File for the lines about changes; None: the log."""

    def __post_init__(self) -> None:
        """Raises SettingsError."""
        if not self.clusters:
            raise SettingsError("no cluster is given")
        if not self.is_loopback and not self.login and not self.allow_anonymous:
            raise SettingsError(
                f"--listen {self.host}: other machines could read all records; add --login, or --allow-anonymous if "
                "the network decides who connects"
            )
        if self.login:
            for name, options in self.clusters.items():
                if not str(options.get("security_protocol", "")).startswith("SASL_"):
                    raise SettingsError(
                        f"--login needs security.protocol=SASL_PLAINTEXT or SASL_SSL for the cluster {name}"
                    )
                mechanism = options.get("sasl_mechanism")
                if mechanism not in LOGIN_MECHANISMS:
                    raise SettingsError(
                        f"--login needs sasl.mechanism={', '.join(LOGIN_MECHANISMS)} for the cluster {name}"
                    )

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        if self.host == "localhost":
            return True
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return False

    def accepts_host(self, header: str) -> bool:
        """Whether a Host header names this console: a page of a foreign name may not use it (DNS rebinding)."""
        name = host_of(header)
        return name in LOOPBACK_NAMES or name == self.host.lower() or name in self.hosts


def host_of(header: str) -> str:
    """The host of a Host header, without its port and in lower case."""
    text = header.strip().lower()
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text
