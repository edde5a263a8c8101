"""Checks of what the clients' constructors take besides options: objects with methods, functions, topics."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import Any, Final

from odradek.client.errors import ConfigError
from odradek.client.serializers import describe
from odradek.client.topic_names import check_topic_name

_OF_PRODUCERS: Final = ("on_send", "on_acknowledgement")
_OF_CONSUMERS: Final = ("on_consume", "on_commit")
_OF_LISTENERS: Final = ("on_partitions_assigned", "on_partitions_revoked", "on_partitions_lost")
_OF_PORTS: Final = {"network": "connect", "random": "randrange", "clock": "now_ms"}
"""A method of each object that replaces sockets, chance and time in tests."""


def check_partitioner(partitioner: object) -> None:
    """Raise ConfigError for what is neither None nor a `Partitioner`."""
    if partitioner is not None:
        _check_object("partitioner", partitioner, ("partition",))


def check_producer_interceptors(interceptors: object) -> None:
    """Raise ConfigError for what is not a sequence of `ProducerInterceptor`."""
    _check_interceptors(interceptors, _OF_PRODUCERS)


def check_consumer_interceptors(interceptors: object) -> None:
    """Raise ConfigError for what is not a sequence of `ConsumerInterceptor`."""
    _check_interceptors(interceptors, _OF_CONSUMERS)


def check_listener(listener: object) -> None:
    """Raise ConfigError for what is neither None nor a listener of rebalances."""
    if listener is not None:
        _check_object("listener", listener, _OF_LISTENERS)


def check_callback(name: str, callback: object) -> None:
    """Raise ConfigError for what is neither None nor a function."""
    if callback is not None and not callable(callback):
        raise ConfigError(f"{name}: expected a function or None, got {describe(callback)}")


def check_ports(**ports: object) -> None:
    """Raise ConfigError for what cannot replace the network, chance or the clock."""
    for name, port in ports.items():
        if port is not None:
            _check_object(name, port, (_OF_PORTS[name],))


def check_topics(topics: Iterable[object]) -> set[str]:
    """Names of topics to subscribe to. Raises ConfigError, KafkaError (INVALID_TOPIC_EXCEPTION)."""
    for each in topics:
        if not isinstance(each, str):
            raise ConfigError(f"topics: expected names (str), one argument each, got {describe(each)}")
    return {check_topic_name(each) for each in topics}


def keywords(config: Mapping[str, Any], arguments: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Keyword arguments of a constructor: a mapping with Kafka's dotted names, and other arguments. Raises ConfigError.

    An option under two names, or in both, is an error: one of its values would be without effect.
    """
    if not isinstance(config, Mapping):
        raise ConfigError(f"config: expected a mapping of names and values, got {describe(config)}")
    found = dict(arguments or {})
    for given, value in config.items():
        if not isinstance(given, str):
            raise ConfigError(f"config: expected names of options (str), got {describe(given)}")
        name = given.replace(".", "_")
        if name in found:
            raise ConfigError(f"{name} is given twice: in the mapping as {given!r}, and again")
        found[name] = value
    return found


def _check_interceptors(interceptors: object, methods: tuple[str, ...]) -> None:
    if not isinstance(interceptors, list | tuple):
        raise ConfigError(f"interceptors: expected a list of interceptors, got {describe(interceptors)}")
    for each in interceptors:
        _check_object("interceptors", each, methods)


def _check_object(name: str, given: object, methods: tuple[str, ...]) -> None:
    """Raise ConfigError unless it is an object with one of the methods."""
    if inspect.isclass(given):
        raise ConfigError(f"{name}: {given.__name__} is a class: pass an instance, {given.__name__}(...)")
    # A text has a method `partition`, too.
    if isinstance(given, str) or not any(callable(getattr(given, each, None)) for each in methods):
        raise ConfigError(f"{name}: expected an object with {' or '.join(methods)}, got {describe(given)}")
