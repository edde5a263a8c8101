"""`odradek console`: look into topics, records and groups of clusters in a browser."""

from __future__ import annotations

import argparse
import copy
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from odradek.cli.arguments.errors import CommandError, UsageError, client_log
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import add_connection, client_settings, seconds
from odradek.client.config import ADMIN_DEFAULTS
from odradek.ports.installation import install_hint

if TYPE_CHECKING:
    from odradek.console.settings import OpenIdSettings

DEFAULT_LISTEN: Final = "127.0.0.1:8080"
DEFAULT_IDLE_S: Final = 1800.0
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")

EXAMPLES: Final = """
# look into the broker on 127.0.0.1:9092 at http://127.0.0.1:8080/
odradek console
# change topics and groups, too, of two clusters
odradek console --allow-changes --cluster dev=127.0.0.1:9092 --cluster test=127.0.0.1:9192
# let people of other machines log in as users of the cluster
odradek console --listen 0.0.0.0:8080 --login --allowed-host kafka.example.org --command-config client.properties
# let people log in at an OpenID provider whose access tokens the cluster accepts
odradek console --listen 0.0.0.0:8080 --login --oidc-issuer https://login.example.org/realms/shop \
    --oidc-client-id console --public-url https://kafka.example.org --command-config client.properties
# hide card numbers in all records
odradek console --mask 'payments*:value.card.number' --mask '*:headers.authorization'
# show Avro and Protobuf values
odradek console --schema orders=order.avsc --schema 'payments*=shop.desc:shop.Payment'
"""


def configure(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.add_argument(
        "--listen",
        default=DEFAULT_LISTEN,
        metavar="HOST:PORT",
        help=f"address to serve (default: {DEFAULT_LISTEN}); port 0 picks a free one",
    )
    parser.add_argument(
        "--cluster",
        action="append",
        metavar="NAME=HOST:PORT,…",
        help="cluster by the name that pages show (repeatable); without servers, NAME is one of `odradek profile`",
    )
    parser.add_argument("--allow-changes", action="store_true", help="allow pages to change clusters and produce")
    parser.add_argument(
        "--login", action="store_true", help="each person logs in as a user of the cluster by SASL, so that ACLs apply"
    )
    parser.add_argument(
        "--allow-anonymous",
        action="store_true",
        help="serve an address beyond loopback without a login: everyone who reaches it reads all records",
    )
    parser.add_argument(
        "--allowed-host",
        action="append",
        default=[],
        metavar="NAME",
        help="name by which browsers may call the console, beside its address (repeatable)",
    )
    parser.add_argument(
        "--public-url",
        default="",
        metavar="URL",
        help="URL by which browsers reach the console behind a proxy; with https they return cookies over https only",
    )
    _add_openid(parser)
    _add_contents(parser)
    parser.add_argument(
        "--idle-timeout",
        type=seconds,
        default=DEFAULT_IDLE_S,
        metavar="SECONDS",
        help=f"time without a request after which a login ends (default: {DEFAULT_IDLE_S:g})",
    )
    parser.add_argument("--audit-log", metavar="FILE", help="append a line of JSON for each change (default: the log)")
    # Of `odradek serve --console`, whose console ends when its input does.
    parser.add_argument("--until-input-ends", action="store_true", help=argparse.SUPPRESS)
    add_connection(parser)
    add_examples(parser, EXAMPLES)


def _add_openid(parser: argparse.ArgumentParser) -> None:
    """Options of logins at an OpenID provider."""
    parser.add_argument(
        "--oidc-issuer",
        metavar="URL",
        help="with --login: people log in at this OpenID provider, and act with its access tokens (OAUTHBEARER)",
    )
    parser.add_argument("--oidc-client-id", default="", metavar="ID", help="the console's client id at the issuer")
    parser.add_argument(
        "--oidc-client-secret-file", metavar="FILE", help="file with the client's secret (default: a public client)"
    )
    parser.add_argument(
        "--oidc-scope",
        action="append",
        default=[],
        metavar="SCOPE",
        help="scope to ask for beside openid, such as offline_access for refresh tokens (repeatable)",
    )
    parser.add_argument(
        "--oidc-user-claim",
        default="sub",
        metavar="CLAIM",
        help="claim of the ID token that names the user in pages and in the audit log (default: sub)",
    )


def _add_contents(parser: argparse.ArgumentParser) -> None:
    """Options about what pages show."""
    parser.add_argument(
        "--mask",
        action="append",
        default=[],
        metavar="RULE",
        help="hide a part of records: TOPIC:key, TOPIC:value.FIELD or TOPIC:headers.NAME; * matches (repeatable)",
    )
    parser.add_argument("--mask-file", metavar="FILE", help="rules of --mask, one on each line")
    parser.add_argument(
        "--schema",
        action="append",
        default=[],
        metavar="TOPIC=FILE",
        help="decode values: TOPIC=FILE.avsc is Avro, TOPIC=DESCRIPTORS:MESSAGE is Protobuf; TOPIC:key= is for keys, "
        "TOPIC#7= for values with schema id 7; * matches (repeatable)",
    )
    parser.add_argument(
        "--dead-letters",
        action="append",
        metavar="PATTERN",
        help="names of topics of dead letters, with * and ? (repeatable; default: *dlq*, *dlt, *dead-letter*, …)",
    )
    parser.add_argument(
        "--metrics",
        action="append",
        default=[],
        metavar="[NAME=]HOST:PORT",
        help="HTTP listener of a broker, or a URL, for plots of latencies; NAME is that of the --cluster (repeatable)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT. Raises UsageError, CommandError."""
    try:
        from odradek.console.server import serve
        from odradek.console.settings import DEAD_LETTERS, ConsoleSettings, SettingsError
    except ImportError as error:
        raise CommandError(
            f"the console needs packages that are not installed ({error.name}): {install_hint('console')}"
        ) from error
    from odradek.broker.log_output import configure_logging

    configure_logging("info", "text")
    host, port = address_of(arguments.listen)
    clusters = clusters_of(arguments)
    try:
        settings = ConsoleSettings(
            clusters=clusters,
            host=host,
            port=port,
            allow_changes=arguments.allow_changes,
            login=arguments.login,
            openid=openid_of(arguments),
            allow_anonymous=arguments.allow_anonymous,
            hosts=frozenset(each.lower() for each in arguments.allowed_host),
            public_url=arguments.public_url,
            idle_s=arguments.idle_timeout,
            masks=masks_of(arguments),
            schemas=schemas_of(arguments),
            metrics=metrics_of(arguments, list(clusters)),
            dead_letters=tuple(arguments.dead_letters or DEAD_LETTERS),
            audit_log=arguments.audit_log,
        )
    except SettingsError as error:
        raise UsageError(str(error)) from error
    try:
        with client_log("console"):
            serve(settings, _show_ready, sys.stdin.fileno() if arguments.until_input_ends else None)
    except OSError as error:
        raise CommandError(f"{error.filename or arguments.listen}: {error.strerror or error}") from error
    return 0


def address_of(text: str, option: str = "--listen") -> tuple[str, int]:
    """HOST:PORT, an IPv6 address in brackets. Raises UsageError."""
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"{option} {text}: HOST:PORT expected")
    return host, int(port)


def clusters_of(arguments: argparse.Namespace) -> Mapping[str, Mapping[str, Any]]:
    """Client options by the name of the cluster. Raises UsageError."""
    if not arguments.cluster:
        return {"cluster": client_settings(arguments, ADMIN_DEFAULTS)}
    if arguments.bootstrap_server is not None:
        raise UsageError("--cluster and --bootstrap-server exclude each other")
    found = {}
    for text in arguments.cluster:
        name, equals, servers = text.partition("=")
        if not _NAME.fullmatch(name) or (equals and not servers.strip()):
            raise UsageError(f"--cluster {text}: NAME=HOST:PORT,… or the name of a profile expected")
        if name in found:
            raise UsageError(f"--cluster {name} is given twice")
        own = copy.copy(arguments)
        if equals:
            own.bootstrap_server = servers
        else:
            own.profile = name
        found[name] = client_settings(own, ADMIN_DEFAULTS)
    return found


def openid_of(arguments: argparse.Namespace) -> OpenIdSettings | None:
    """The issuer of logins; None without one. Raises UsageError, CommandError, SettingsError."""
    from odradek.console.settings import OpenIdSettings

    secret = ""
    if arguments.oidc_issuer is None:
        given = {"--oidc-client-id": arguments.oidc_client_id, "--oidc-scope": arguments.oidc_scope,
                 "--oidc-client-secret-file": arguments.oidc_client_secret_file}  # fmt: skip
        for option, value in given.items():
            if value:
                raise UsageError(f"{option} needs --oidc-issuer")
        return None
    try:
        import jwt  # noqa: F401 - the first login would fail without it
    except ImportError as error:
        raise CommandError(
            f"--oidc-issuer needs packages that are not installed ({error.name}): {install_hint('oauth')}"
        ) from error
    if arguments.oidc_client_secret_file:
        secret = read_text(arguments.oidc_client_secret_file, "--oidc-client-secret-file").strip()
        if not secret:
            raise UsageError(f"--oidc-client-secret-file {arguments.oidc_client_secret_file}: the file is empty")
    return OpenIdSettings(
        issuer=arguments.oidc_issuer,
        client_id=arguments.oidc_client_id,
        client_secret=secret,
        scopes=("openid", *arguments.oidc_scope),
        user_claim=arguments.oidc_user_claim,
    )


def read_text(path: str, option: str) -> str:
    """The text of a file that an option names. Raises UsageError."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{option} {path}: {why}") from error


def masks_of(arguments: argparse.Namespace) -> Any:
    """The mask rules of the options. Raises UsageError."""
    from odradek.console.messages.masks import MaskError, Masks

    lines = list(arguments.mask)
    if arguments.mask_file:
        lines += read_text(arguments.mask_file, "--mask-file").splitlines()
    try:
        return Masks.parse(lines)
    except MaskError as error:
        raise UsageError(f"--mask: {error}") from error


def schemas_of(arguments: argparse.Namespace) -> Any:
    """The schemas of the options. Raises UsageError, CommandError."""
    from odradek.console.messages.schemas import SchemaError, Schemas

    try:
        return Schemas.parse(arguments.schema)
    except SchemaError as error:
        if isinstance(error.__cause__, ImportError):
            raise CommandError(f"--schema needs packages that are not installed: {install_hint('formats')}") from error
        raise UsageError(f"--schema {error}") from error


def metrics_of(arguments: argparse.Namespace, names: Sequence[str]) -> dict[str, list[str]]:
    """URLs of metrics by the name of the cluster. Raises UsageError."""
    found: dict[str, list[str]] = {}
    for text in arguments.metrics:
        name, equals, url = text.partition("=")
        if not equals or "://" in name:
            name, url = names[0], text
            if len(names) > 1:
                raise UsageError(f"--metrics {text}: with several clusters, NAME=URL is expected")
        if "://" not in url:
            host, port = address_of(url, "--metrics")
            url = f"http://{f'[{host}]' if ':' in host else host}:{port}/metrics"
        if name not in names or not url.startswith(("http://", "https://")):
            raise UsageError(f"--metrics {text}: HOST:PORT or a URL, and NAME of a cluster, expected")
        found.setdefault(name, []).append(url)
    return found


def _show_ready(url: str) -> None:
    print(f"odradek console ready url={url} pid={os.getpid()}", flush=True)
