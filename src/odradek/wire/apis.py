"""API keys, their versions, and their message classes, which load on first use."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from odradek.wire.message import ApiMessage
from odradek.wire.messages.catalogue import APIS, Api, ApiKey

__all__ = [
    "APIS",
    "Api",
    "ApiKey",
    "request_class",
    "request_header_version",
    "response_class",
    "response_header_version",
]

_API_VERSIONS = ApiKey.API_VERSIONS.value
_CONTROLLED_SHUTDOWN = 7
_requests: dict[int, type[ApiMessage]] = {}
_responses: dict[int, type[ApiMessage]] = {}


def request_class(key: int) -> type[ApiMessage]:
    """The class of the requests of an API; KeyError if the key is unknown."""
    found = _requests.get(key)
    if found is None:
        found = _requests[key] = _load(key, "Request")
    return found


def response_class(key: int) -> type[ApiMessage]:
    """The class of the responses of an API; KeyError if the key is unknown."""
    found = _responses.get(key)
    if found is None:
        found = _responses[key] = _load(key, "Response")
    return found


def _load(key: int, kind: str) -> type[ApiMessage]:
    api = APIS[key]
    module = import_module(f"odradek.wire.messages.{api.module}")
    return cast("type[ApiMessage]", getattr(module, api.name + kind))


def request_header_version(key: int, version: int) -> int:
    """0 (ControlledShutdown v0: no client id), 1 (client id) or 2 (tagged fields, too); KeyError for an unknown key."""
    if version >= APIS[key].flexible_from:
        return 2
    return 0 if key == _CONTROLLED_SHUTDOWN and version == 0 else 1


def response_header_version(key: int, version: int) -> int:
    """0, or 1 with tagged fields; KeyError if the key is unknown.

    ApiVersions is always answered with 0: its client cannot know yet what the broker understands (KIP-511).
    """
    return 1 if version >= APIS[key].flexible_from and key != _API_VERSIONS else 0
