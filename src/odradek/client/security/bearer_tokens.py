"""Where a client's bearer tokens come from: an object of the program, a file, or the issuer (client credentials)."""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import urllib.parse
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from odradek.client.errors import AuthenticationFailed, ConfigError, Disconnected
from odradek.ports.http import FetchError, check_url, fetch

Token = tuple[str, Mapping[str, str]]
"""A token and SASL extensions."""

_FETCH_SECONDS: Final = 10.0


def token_source(config: Mapping[str, Any]) -> Callable[[], Awaitable[Token]]:
    """Gives a token for each login. Raises ConfigError for options that no token comes from."""
    provider, url = config["sasl_oauth_token_provider"], config["sasl_oauthbearer_token_endpoint_url"]
    if (provider is None) == (not url):
        raise ConfigError(
            "sasl_mechanism=OAUTHBEARER needs sasl_oauth_token_provider or sasl_oauthbearer_token_endpoint_url"
        )
    if provider is not None:
        return lambda: _provided(provider)
    try:
        check_url(url)
    except FetchError as error:
        raise ConfigError(f"sasl_oauthbearer_token_endpoint_url: {error}") from error
    user = str(config["sasl_oauthbearer_client_credentials_client_id"])
    secret = str(config["sasl_oauthbearer_client_credentials_client_secret"])
    if not url.startswith("file:") and not (user and secret):
        raise ConfigError(
            "sasl_oauthbearer_token_endpoint_url needs the client credentials client_id and client_secret"
        )
    return lambda: _fetched(url, user, secret, str(config["sasl_oauthbearer_scope"]))


async def _provided(provider: Any) -> Token:
    """Of a function, or of an object with `token` and perhaps `extensions`, as in aiokafka and kafka-python."""
    get = getattr(provider, "token", provider)
    if inspect.iscoroutinefunction(get):
        token = await get()
    else:
        token = await asyncio.get_running_loop().run_in_executor(None, get)
    extensions = getattr(provider, "extensions", None)
    return str(token), dict(extensions() or {}) if callable(extensions) else {}


async def _fetched(url: str, user: str, secret: str, scope: str) -> Token:
    """From a file, or by the grant of client credentials (RFC 6749, section 4.4)."""
    data, headers = None, {}
    if not url.startswith("file:"):
        form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
        data = urllib.parse.urlencode(form).encode()
        credentials = f"{urllib.parse.quote_plus(user)}:{urllib.parse.quote_plus(secret)}"
        headers = {
            "Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}",
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        }
    try:
        body = await asyncio.get_running_loop().run_in_executor(None, fetch, url, _FETCH_SECONDS, data, headers)
    except FetchError as error:
        raise Disconnected(f"cannot fetch a token: {error}") from error
    if data is None:
        return body.decode(errors="replace").strip(), {}
    try:
        token = json.loads(body)["access_token"]
    except (ValueError, KeyError, TypeError):
        raise AuthenticationFailed("the token endpoint answered without an access token") from None
    return str(token), {}
