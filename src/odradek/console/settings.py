"""What the console is started with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from odradek.console.messages.masks import Masks
from odradek.console.messages.schemas import Schemas
from odradek.ports.hosts import host_of_header, is_loopback
from odradek.ports.http import FetchError, check_url

LOGIN_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
"""SASL mechanisms with user name and password."""
BEARER: Final = "OAUTHBEARER"
"""SASL mechanism of logins by OpenID Connect."""
CALLBACK: Final = "/login/callback"
"""Path of the console to which an issuer sends browsers back."""
LOOPBACK_NAMES: Final = frozenset({"localhost", "127.0.0.1", "::1"})


DEAD_LETTERS: Final = ("*dlq*", "*dlt", "*dead-letter*", "*dead_letter*", "*deadletter*")
"""Names that Spark's, Connect's and Spring's users give such topics."""


class SettingsError(Exception):
    """A combination of settings that the console does not accept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenIdSettings:
    """The issuer of logins, and what the console is to it."""

    issuer: str
    """URL of the issuer, as in its tokens."""
    client_id: str
    """The console's id at the issuer."""
    client_secret: str = field(default="", repr=False)
    """The console's secret at the issuer; empty for a public client."""
    scopes: tuple[str, ...] = ("openid",)
    """Scopes to ask for; `openid` is always one of them."""
    user_claim: str = "sub"
    """Claim of the ID token that names the user in pages and in the audit log."""

    def __post_init__(self) -> None:
        """Raises SettingsError."""
        parts = urlsplit(self.issuer)
        try:
            check_url(self.issuer)
        except FetchError as error:
            raise SettingsError(f"--oidc-issuer {error}") from error
        if parts.scheme == "file" or parts.query or parts.fragment:
            raise SettingsError(f"--oidc-issuer {self.issuer}: an https URL without a query expected")
        if not self.client_id:
            raise SettingsError("--oidc-issuer needs --oidc-client-id")


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
    openid: OpenIdSettings | None = None
    """Logins are those of this issuer, whose access tokens the cluster accepts; None: by user and password."""
    allow_anonymous: bool = False
    """Whether everyone who reaches the address may use the console, beyond loopback."""
    hosts: frozenset[str] = frozenset()
    """Names by which browsers may call this console, beside its address."""
    public_url: str = ""
    """URL of the console as browsers and the issuer know it; empty for http and the requested host."""
    idle_s: float = 30 * 60.0
    """Seconds without a request after which a login ends."""
    sample_s: float = 10.0
    """Least seconds between two samples of a cluster's offsets and sizes."""
    masks: Masks = field(default_factory=Masks)
    """The masks of records."""
    schemas: Schemas = field(default_factory=Schemas)
    """The formats of keys and values."""
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
        if self.public_url:
            public = urlsplit(self.public_url)
            if public.scheme not in ("http", "https") or not public.hostname or public.path.strip("/") or public.query:
                raise SettingsError(f"--public-url {self.public_url}: https://HOST expected")
        if not self.is_loopback and not self.login and not self.allow_anonymous:
            raise SettingsError(
                f"--listen {self.host}: other machines could read all records; add --login, or --allow-anonymous if "
                "the network decides who connects"
            )
        if self.openid is not None and not self.login:
            raise SettingsError("--oidc-issuer needs --login")
        if self.login:
            self._check_login()

    def _check_login(self) -> None:
        accepted = LOGIN_MECHANISMS if self.openid is None else (BEARER,)
        option = "--login" if self.openid is None else "--oidc-issuer"
        for name, options in self.clusters.items():
            if not str(options.get("security_protocol", "")).startswith("SASL_"):
                raise SettingsError(
                    f"{option} needs security.protocol=SASL_PLAINTEXT or SASL_SSL for the cluster {name}"
                )
            mechanism = options.get("sasl_mechanism")
            if mechanism == BEARER and self.openid is None:
                raise SettingsError(f"--login with sasl.mechanism={BEARER} needs --oidc-issuer (cluster {name})")
            if mechanism not in accepted:
                raise SettingsError(f"{option} needs sasl.mechanism={', '.join(accepted)} for the cluster {name}")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)

    @property
    def is_https(self) -> bool:
        """Whether browsers reach the console by https only, as `--public-url` says."""
        return urlsplit(self.public_url).scheme == "https"

    def redirect_uri(self, host: str) -> str:
        """Where an issuer of logins sends a browser back that has called the console by this host."""
        return f"{self.public_url.rstrip('/') or f'http://{host}'}{CALLBACK}"

    def accepts_host(self, header: str) -> bool:
        """Whether a Host header names this console: a page of a foreign name may not use it (DNS rebinding)."""
        name = host_of_header(header)
        if self.public_url and name == urlsplit(self.public_url).hostname:
            return True
        return name in LOOPBACK_NAMES or name == self.host.lower() or name in self.hosts
