"""TLS of a client's connections, from its options. Its modules load on first use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, TypedDict

from odradek.client.errors import ConfigError
from odradek.ports.network import Secure, Stream

if TYPE_CHECKING:
    import ssl

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
"""Implemented values of `security_protocol`."""


_WITH_TLS: Final = ("SSL", "SASL_SSL")


class SecurityOptions(TypedDict, total=False):
    """Options of every client for secure connections."""

    security_protocol: str
    """`PLAINTEXT`, `SSL`, `SASL_PLAINTEXT` or `SASL_SSL`."""
    ssl_cafile: str
    """PEM file of the authorities to trust; the system's if it is not set."""
    ssl_certfile: str
    """PEM file of this client's certificate, with those that sign it; also with its key if there is no ssl_keyfile."""
    ssl_keyfile: str
    """PEM file of the certificate's private key."""
    ssl_password: str
    """Password of the private key."""
    ssl_check_hostname: bool
    """Whether the certificate must name the broker's host."""
    ssl_truststore_location: str
    """Kafka's name for ssl_cafile."""
    ssl_truststore_type: str
    """`PEM`, `JKS` or `PKCS12`; the file's contents decide."""
    ssl_truststore_password: str
    """Password of a trust store in JKS or PKCS12."""
    ssl_truststore_certificates: str
    """The authorities to trust as PEM text, in the place of a file."""
    ssl_keystore_location: str
    """Kafka's name for an ssl_certfile with the private key."""
    ssl_keystore_type: str
    """`PEM`, `JKS` or `PKCS12`; the file's contents decide."""
    ssl_keystore_password: str
    """Password of a key store in JKS or PKCS12."""
    ssl_keystore_key: str
    """The private key as PEM text, in the place of a file."""
    ssl_keystore_certificate_chain: str
    """The certificate as PEM text, in the place of a file."""
    ssl_key_password: str
    """Kafka's name for ssl_password."""
    ssl_endpoint_identification_algorithm: str
    """Kafka's name for ssl_check_hostname: `https`, or empty for no check."""
    ssl_enabled_protocols: str
    """Versions of TLS: `TLSv1.2`, `TLSv1.3`."""
    ssl_protocol: str
    """`TLSv1.2` excludes TLS 1.3."""
    ssl_cipher_suites: str
    """Cipher suites by Java's or OpenSSL's names; empty: OpenSSL's choice."""
    sasl_mechanism: str
    """`PLAIN`, `SCRAM-SHA-256`, `SCRAM-SHA-512`, `OAUTHBEARER` or `GSSAPI`."""
    sasl_plain_username: str
    """User name for PLAIN and SCRAM."""
    sasl_plain_password: str
    """Password for PLAIN and SCRAM."""
    sasl_credentials_provider: Any
    """Gives user name and password for PLAIN and SCRAM at every login: a function, perhaps a coroutine function."""
    sasl_jaas_config: str
    """Kafka's form of user name and password, or of a Kerberos key: a line with a login module."""
    sasl_kerberos_service_name: str
    """The first part of the brokers' Kerberos names, for instance `kafka`; GSSAPI needs it."""
    sasl_kerberos_domain_name: str
    """The second part of the brokers' Kerberos names; empty: the host that the client connects to."""
    sasl_oauth_token_provider: Any
    """Gives bearer tokens: a function, or an object with `token`, as in aiokafka and kafka-python."""
    sasl_oauthbearer_token_endpoint_url: str
    """Where bearer tokens are fetched with client credentials, or `file:///PATH` of a token."""
    sasl_oauthbearer_client_credentials_client_id: str
    """The client's name at the token endpoint."""
    sasl_oauthbearer_client_credentials_client_secret: str
    """The client's secret at the token endpoint."""
    sasl_oauthbearer_scope: str
    """The scope to ask the token endpoint for."""


SECURITY_DEFAULTS: Final[SecurityOptions] = {
    "security_protocol": "PLAINTEXT",
    "ssl_cafile": "",
    "ssl_certfile": "",
    "ssl_keyfile": "",
    "ssl_password": "",
    "ssl_check_hostname": True,
    "ssl_truststore_location": "",
    "ssl_truststore_type": "PEM",
    "ssl_truststore_password": "",
    "ssl_truststore_certificates": "",
    "ssl_keystore_location": "",
    "ssl_keystore_type": "PEM",
    "ssl_keystore_password": "",
    "ssl_keystore_key": "",
    "ssl_keystore_certificate_chain": "",
    "ssl_key_password": "",
    "ssl_endpoint_identification_algorithm": "https",
    "ssl_enabled_protocols": "TLSv1.2,TLSv1.3",
    "ssl_protocol": "TLSv1.3",
    "ssl_cipher_suites": "",
    "sasl_mechanism": "",
    "sasl_plain_username": "",
    "sasl_plain_password": "",
    "sasl_credentials_provider": None,
    "sasl_jaas_config": "",
    "sasl_kerberos_service_name": "",
    "sasl_kerberos_domain_name": "",
    "sasl_oauth_token_provider": None,
    "sasl_oauthbearer_token_endpoint_url": "",
    "sasl_oauthbearer_client_credentials_client_id": "",
    "sasl_oauthbearer_client_credentials_client_secret": "",
    "sasl_oauthbearer_scope": "",
}
_SAME: Final = {
    "ssl_truststore_location": "ssl_cafile",
    "ssl_keystore_location": "ssl_certfile",
    "ssl_key_password": "ssl_password",
}
"""Kafka's names, and those of aiokafka and kafka-python for the same."""


def uses_sasl(config: Mapping[str, Any]) -> bool:
    """Whether the client's connections begin with a login."""
    return str(config["security_protocol"]).upper().startswith("SASL_")


def check_security(config: Mapping[str, Any]) -> None:
    """Raise ConfigError for an unknown protocol, options that contradict each other, and unusable files."""
    protocol = str(config["security_protocol"]).upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(f"security_protocol {config['security_protocol']!r}: {', '.join(PROTOCOLS)} are supported")
    given = [name for name, default in SECURITY_DEFAULTS.items() if config[name] not in (default, None)]
    for name in given:
        if name.startswith("ssl_") and protocol not in _WITH_TLS:
            raise ConfigError(f"{name} needs security_protocol=SSL or SASL_SSL")
        if name.startswith("sasl_") and not protocol.startswith("SASL_"):
            raise ConfigError(f"{name} needs security_protocol=SASL_SSL or SASL_PLAINTEXT")
    if uses_sasl(config):
        from odradek.client.security.sasl import check_sasl  # a client without SASL does not load it

        check_sasl(config)
    for kafkas, other in _SAME.items():
        if config[kafkas] and config[other]:
            raise ConfigError(f"{kafkas} and {other} mean the same: set one of them")
    if config["ssl_keyfile"] and not config["ssl_certfile"]:
        raise ConfigError("ssl_keyfile needs ssl_certfile")
    if protocol in _WITH_TLS:
        _context(config)  # `start` reads the files again


def secure_connections(config: Mapping[str, Any]) -> Secure | None:
    """Return the wrapper that puts TLS on connections; None for plain text. Raises ConfigError for unusable files."""
    if str(config["security_protocol"]).upper() not in _WITH_TLS:
        return None
    from odradek.ports.tls import connect_tls

    context = _context(config)

    async def secure(stream: Stream, host: str, timeout: float) -> Stream:
        return await connect_tls(stream, context, host, timeout)

    return secure


def _context(config: Mapping[str, Any]) -> ssl.SSLContext:
    from odradek.ports.tls_contexts import TlsSettingError, client_context, tls_settings

    def text(name: str) -> str:
        option = name.replace(".", "_")
        if option == "ssl_client_auth":
            return "none"
        value = config[option] or config[_SAME.get(option, option)] or ""
        return value if isinstance(value, str) else ",".join(value)

    try:
        settings = tls_settings(text)._replace(key_file=config["ssl_keyfile"] or "")
        if not config["ssl_check_hostname"]:
            settings = settings._replace(identification="")
        return client_context(settings)
    except TlsSettingError as error:
        raise ConfigError(str(error)) from error
