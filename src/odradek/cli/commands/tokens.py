"""`odradek tokens [describe|create|renew|expire] [TOKEN_ID]`: delegation tokens, as Apache's kafka-delegation-tokens.

A token's HMAC is a password. It is not taken as an argument, which other users can read: tokens are named by their id.
"""

from __future__ import annotations

import argparse
import base64
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

from odradek.cli.arguments.errors import CommandError, UsageError
from odradek.cli.arguments.examples import add_examples
from odradek.cli.arguments.options import add_admin, positive
from odradek.cli.session import run_admin
from odradek.cli.terminal.output import Column, show
from odradek.client.admin import Admin
from odradek.client.admin.tokens import DelegationToken
from odradek.wire.errors import ErrorCode, KafkaError

T = TypeVar("T")

ACTIONS: Final = ("describe", "create", "renew", "expire")
COLUMNS: Final = (
    Column("TOKEN", "token", 22),
    Column("OWNER", "owner", 20),
    Column("REQUESTER", "requester", 20, wide=True),
    Column("RENEWERS", "renewers", 20, wide=True),
    Column("ISSUED", "issued"),
    Column("EXPIRES", "expires"),
    Column("LAST EXPIRY", "last_expiry"),
)
EXAMPLES: Final = """
# list the tokens that you may see
odradek tokens
# create a token of your own, and print its HMAC; User:robot may renew it
odradek tokens create --renewer-principal User:robot
# create one for another user, for a day at most
odradek tokens create --owner-principal User:alice --max-life-time-period 86400000
# let a token live on by the broker's delegation.token.expiry.time.ms
odradek tokens renew TOKEN_ID
# delete a token now
odradek tokens expire TOKEN_ID
"""
_ONLY: Final = (
    ("max_life_time_period", "--max-life-time-period", ("create",)),
    ("renewer_principal", "--renewer-principal", ("create",)),
    ("owner_principal", "--owner-principal", ("create", "describe")),
    ("renew_time_period", "--renew-time-period", ("renew",)),
    ("expiry_time_period", "--expiry-time-period", ("expire",)),
    ("show_hmac", "--show-hmac", ("describe",)),
)
"""Attribute, option, and the actions that the option is for."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.add_argument("action", nargs="?", choices=ACTIONS, default="describe", help="describe is the default")
    parser.add_argument("token", nargs="?", metavar="TOKEN_ID", help="of renew and expire: the token")
    parser.add_argument(
        "--owner-principal",
        action="append",
        metavar="TYPE:NAME",
        help="of describe: whose tokens (repeatable; default: all); of create: for whom (default: this client)",
    )
    parser.add_argument(
        "--renewer-principal",
        action="append",
        metavar="TYPE:NAME",
        help="of create: who else may renew and expire the token (repeatable)",
    )
    for option, action, default in (
        ("--max-life-time-period", "create", "the broker's delegation.token.max.lifetime.ms"),
        ("--renew-time-period", "renew", "the broker's delegation.token.expiry.time.ms"),
        ("--expiry-time-period", "expire", "now"),
    ):
        parser.add_argument(option, type=positive, metavar="MS", help=f"of {action}: milliseconds (default: {default})")
    parser.add_argument("--show-hmac", action="store_true", help="of describe: print HMACs, which are passwords")
    add_admin(parser)
    add_examples(parser, EXAMPLES)


def run(arguments: argparse.Namespace) -> int:
    """Check which options go together, and run the action; the exit status."""
    action = arguments.action
    for attribute, option, actions in _ONLY:
        if getattr(arguments, attribute) and action not in actions:
            raise UsageError(f"{option} goes with {' and '.join(actions)} only")
    if (action in ("renew", "expire")) != (arguments.token is not None):
        raise UsageError(f"{action} needs a TOKEN_ID" if arguments.token is None else f"{action} takes no TOKEN_ID")
    if action == "create" and len(arguments.owner_principal or ()) > 1:
        raise UsageError("--owner-principal: a token has one owner")
    for each in (*(arguments.owner_principal or ()), *(arguments.renewer_principal or ())):
        if not all(each.partition(":")):
            raise UsageError(f"{each!r} is not a principal such as User:alice")
    if action == "describe":
        found = _asked(arguments, lambda admin: _described(admin, arguments.owner_principal))
        show([_row(each, arguments.show_hmac) for each in found], _columns(arguments.show_hmac), arguments.output)
    elif action == "create":
        made = _asked(arguments, lambda admin: _created(admin, arguments))
        show([_row(made, shows_hmac=True)], _columns(shows_hmac=True), arguments.output)
    else:
        expiry_ms = _asked(arguments, lambda admin: _changed(admin, arguments))
        print(f"Token {arguments.token} expires at {_time(expiry_ms)}.")
    return 0


def _asked(arguments: argparse.Namespace, work: Callable[[Admin], Awaitable[T]]) -> T:
    """As `run_admin`; raises CommandError in words where the brokers have no tokens."""

    async def asked(admin: Admin) -> T:
        try:
            return await work(admin)
        except KafkaError as error:
            if error.code is not ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED:
                raise
            raise CommandError(
                "the cluster has no delegation tokens: set delegation.token.secret.key, the same on all brokers",
                error.code.name,
            ) from error

    return run_admin(arguments, asked)


async def _described(admin: Admin, owners: Sequence[str] | None) -> list[DelegationToken]:
    return sorted(await admin.tokens.describe(owners), key=lambda each: (each.owner, each.issued_ms, each.token_id))


async def _created(admin: Admin, arguments: argparse.Namespace) -> DelegationToken:
    (owner,) = arguments.owner_principal or (None,)
    renewers = arguments.renewer_principal or ()
    lifetime_ms = arguments.max_life_time_period or -1
    made = await admin.tokens.create(owner=owner, renewers=renewers, max_lifetime_ms=lifetime_ms)
    return made._replace(renewers=tuple(renewers))


async def _changed(admin: Admin, arguments: argparse.Namespace) -> int:
    known = {each.token_id: each for each in await admin.tokens.describe()}
    token = known.get(arguments.token)
    if token is None:
        raise CommandError(
            f"there is no token {arguments.token!r}, or this client may not see it", "DELEGATION_TOKEN_NOT_FOUND"
        )
    try:
        if arguments.action == "renew":
            return await admin.tokens.renew(token.hmac, arguments.renew_time_period or -1)
        return await admin.tokens.expire(token.hmac, arguments.expiry_time_period or -1)
    except KafkaError as error:
        raise CommandError(f"token {arguments.token!r}: {error}", error.code.name) from error


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(" ", "seconds")


def _columns(shows_hmac: bool) -> tuple[Column, ...]:
    return (COLUMNS[0], Column("HMAC", "hmac"), *COLUMNS[1:]) if shows_hmac else COLUMNS


def _row(token: DelegationToken, shows_hmac: bool) -> dict[str, Any]:
    row = {
        "token": token.token_id,
        "owner": token.owner,
        "requester": token.requester,
        "renewers": list(token.renewers),
        "issued": _time(token.issued_ms),
        "expires": _time(token.expiry_ms),
        "last_expiry": _time(token.max_ms),
    }
    return row | ({"hmac": base64.b64encode(token.hmac).decode()} if shows_hmac else {})
