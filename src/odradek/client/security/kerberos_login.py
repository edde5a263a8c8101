"""The client's side of GSSAPI: where its Kerberos credentials are, and the exchange outside of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from odradek.client.errors import ConfigError
from odradek.ports.installation import install_hint
from odradek.security.gssapi_exchange import GssapiClient
from odradek.security.jaas import JaasError, parse_jaas

_MECHANISM: Final = "GSSAPI"
_WITHOUT_EFFECT: Final = ("sasl_plain_username", "sasl_plain_password", "sasl_oauth_token_provider")


class KerberosSettings(NamedTuple):
    """Whose tickets, and of which service."""

    service: str
    """The first part of the brokers' names."""
    domain: str
    """The second part; empty for the host that the client connects to."""
    principal: str
    """Empty for the one of the tickets."""
    key_table: str
    """Empty for tickets."""
    ticket_cache: str
    """Empty for the one of `kinit`."""


def kerberos_settings(config: Mapping[str, Any]) -> KerberosSettings:
    """Raises ConfigError."""
    for name in _WITHOUT_EFFECT:
        if config[name]:
            raise ConfigError(f"{name} has no effect with sasl_mechanism=GSSAPI")
    options: Mapping[str, str] = {}
    if config["sasl_jaas_config"]:
        try:
            module = parse_jaas(config["sasl_jaas_config"])
        except JaasError as error:
            raise ConfigError(f"sasl_jaas_config: {error}") from error
        if _MECHANISM not in module.mechanisms:
            raise ConfigError(f"sasl_jaas_config: {module.name} is for {' and '.join(module.mechanisms)}")
        options = module.options
    named, of_module = str(config["sasl_kerberos_service_name"] or ""), options.get("serviceName", "")
    if named and of_module and named != of_module:
        raise ConfigError(f"sasl_kerberos_service_name is {named}, serviceName of sasl_jaas_config {of_module}")
    service = named or of_module
    if not service:
        raise ConfigError("sasl_mechanism=GSSAPI needs sasl_kerberos_service_name, for instance kafka")
    uses_key_table = options.get("useKeyTab", "").lower() == "true" or "keyTab" in options
    if uses_key_table and not (options.get("keyTab") and options.get("principal")):
        raise ConfigError("sasl_jaas_config: a key table needs keyTab and principal")
    return KerberosSettings(
        service,
        str(config["sasl_kerberos_domain_name"] or ""),
        options.get("principal", ""),
        options.get("keyTab", ""),
        options.get("ticketCache", ""),
    )


class KerberosSteps:
    """One exchange; implements `Steps`."""

    def __init__(self, client: GssapiClient, first: bytes) -> None:
        self._client = client
        self.first = first

    @classmethod
    async def begin(cls, settings: KerberosSettings, host: str) -> KerberosSteps:
        """Ask for a ticket. Raises SaslError, and ConfigError without the extra `gssapi`."""
        return cls(*await asyncio.get_running_loop().run_in_executor(None, _begin, settings, host))

    async def next(self, answer: bytes) -> bytes | None:
        """The message after an answer of the broker; None when the exchange is complete. Raises SaslError."""
        return await asyncio.get_running_loop().run_in_executor(None, self._client.next, answer)


def _begin(settings: KerberosSettings, host: str) -> tuple[GssapiClient, bytes]:
    try:
        from odradek.security.kerberos import initiate
    except (ImportError, OSError) as error:
        raise ConfigError(
            f"GSSAPI needs {getattr(error, 'name', None) or 'Kerberos'}: {install_hint('gssapi')}"
        ) from error
    context = initiate(
        settings.service, settings.domain or host, settings.principal, settings.key_table, settings.ticket_cache
    )
    client = GssapiClient(context)
    return client, client.first()
