"""Checks of single option values. Every error names the option and the accepted values."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any, Final, SupportsIndex

from odradek.client.durations import BY_DURATION, duration_ms
from odradek.client.errors import ConfigError

_LARGEST: Final = 2**31 - 1
_LARGEST_LONG: Final = 2**63 - 1
_LONGEST_TEXT: Final = 2**15 - 1
"""Bytes of a string in Kafka's protocol."""
_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "client_dns_lookup": ("use_all_dns_ips", "resolve_canonical_bootstrap_servers_only"),
    "metadata_recovery_strategy": ("rebootstrap", "none"),
    "auto_offset_reset": ("earliest", "latest", "none"),
    "compression_type": ("none", "gzip", "snappy", "lz4", "zstd"),
    "group_protocol": ("classic", "consumer"),
    "isolation_level": ("read_uncommitted", "read_committed"),
    "share_acknowledgement_mode": ("implicit", "explicit"),
    "share_acquire_mode": ("batch_optimized", "record_limit"),
}
_LOWEST: Final[Mapping[str, int]] = {
    "compression_level": -(2**17),
    "connections_max_idle_ms": -1,
    "delivery_timeout_ms": 1,
    "heartbeat_interval_ms": 1,
    "max_in_flight_requests_per_connection": 1,
    "max_poll_interval_ms": 1,
    "max_poll_records": 1,
    "metrics_num_samples": 1,
    "metrics_sample_window_ms": 1,
    "receive_buffer_bytes": -1,
    "send_buffer_bytes": -1,
    "session_timeout_ms": 1,
    "transaction_timeout_ms": 1,
}
"""Lowest numbers of options; 0 for the others."""
_LONG: Final = frozenset(
    {
        "buffer_memory", "connections_max_idle_ms", "linger_ms", "max_block_ms", "metadata_max_age_ms",
        "metadata_recovery_rebootstrap_trigger_ms", "metrics_sample_window_ms", "partitioner_availability_timeout_ms",
        "reconnect_backoff_max_ms", "reconnect_backoff_ms", "retry_backoff_max_ms",
        "retry_backoff_ms", "socket_connection_setup_timeout_max_ms", "socket_connection_setup_timeout_ms",
    }
)  # fmt: skip
"""Numbers with 64 bits in Java's clients; the others have 32, as in requests."""
_NOT_EMPTY: Final = frozenset({"group_id", "group_instance_id", "group_remote_assignor", "transactional_id"})
_FILES: Final = frozenset(
    {"ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_truststore_location", "ssl_keystore_location"}
)
_LISTS: Final = frozenset({"ssl_cipher_suites", "ssl_enabled_protocols"})
_SECRET: Final = ("password", "secret", "_key", "jaas_config")
"""Ends of the names of options whose values no error shows."""
_LEVELS: Final[Mapping[str, tuple[str, range]]] = {
    "gzip": ("-1 (the default) and 1 to 9", range(1, 10)),
    "lz4": ("1 to 17", range(1, 18)),
    "zstd": ("-131072 to 22", range(-131072, 23)),
}
"""Levels of codecs, in words and as numbers (KIP-390)."""
_FLAGS: Final = {"true": True, "false": False}


def checked(name: str, value: Any, default: Any) -> Any:
    """The value of an option with that default, converted where text stands for it. Raises ConfigError."""
    if isinstance(default, bool):
        return _flag(name, value)
    if isinstance(default, int) or name == "compression_level":
        return None if value is None and name == "compression_level" else _number(name, value)
    if name == "auto_offset_reset" and isinstance(value, str) and value.lower().startswith(BY_DURATION):
        return _reset_by_duration(value)
    if name in _CHOICES:
        return _choice(name, value)
    if name == "acks":
        return _acks(value)
    if name == "sasl_oauth_token_provider":
        if value is not None and not callable(value) and not callable(getattr(value, "token", None)):
            raise ConfigError(f"{name}: {value!r} is neither a function nor an object with a method `token`")
        return value
    if name == "sasl_credentials_provider":
        if value is not None and not callable(value):
            raise ConfigError(f"{name}: {value!r} is not a function that returns user name and password")
        return value
    if name != "bootstrap_servers" and (default is None or isinstance(default, str)):
        return _text(name, value, default)
    return value


def check_compression_level(codec: str, level: int | None) -> None:
    """Raise ConfigError for a level that the codec does not have."""
    if level is None:
        return
    if codec not in _LEVELS:
        raise ConfigError(f"compression_level: compression_type={codec} has no levels; gzip, lz4 and zstd have")
    words, levels = _LEVELS[codec]
    if level not in levels and not (codec == "gzip" and level == -1):
        raise ConfigError(f"compression_level: {level} is not possible with {codec}, which has levels {words}")


def _choice(name: str, value: Any) -> str:
    if value is None and name == "compression_type":
        return "none"  # as aiokafka and kafka-python write it
    text = value.lower() if isinstance(value, str) else ""
    if text not in _CHOICES[name]:
        more = f", {BY_DURATION}PnDTnHnMnS" if name == "auto_offset_reset" else ""
        raise ConfigError(f"{name}: {value!r} is not one of {', '.join(_CHOICES[name])}{more}")
    return text


def _reset_by_duration(value: str) -> str:
    duration = value[len(BY_DURATION) :].upper()
    if duration_ms(duration) is None:
        raise ConfigError(
            f"auto_offset_reset: {value!r} has no duration of ISO 8601: {BY_DURATION}PnDTnHnMnS is expected, for "
            f"instance {BY_DURATION}PT1H"
        )
    return BY_DURATION + duration


def _flag(name: str, value: Any) -> bool:
    flag = _FLAGS.get(value.strip().lower()) if isinstance(value, str) else value
    if not isinstance(flag, bool):
        raise ConfigError(f"{name}: {value!r} is neither true nor false")
    return flag


def _number(name: str, value: Any) -> int | float:
    is_fraction = name == "linger_ms"
    kind = "number" if is_fraction else "whole number"
    lowest, largest = _LOWEST.get(name, 0), _LARGEST_LONG if name in _LONG else _LARGEST
    accepted = f"expected a {kind} from {lowest} to {largest}"
    if isinstance(value, bool) or not isinstance(value, int | float | str | SupportsIndex):
        raise ConfigError(f"{name}: {value!r} is not a {kind}; {accepted}")
    try:
        number = float(value) if is_fraction else int(value)
    except (TypeError, ValueError, OverflowError):
        raise ConfigError(f"{name}: {value!r} is not a {kind}; {accepted}") from None
    if not math.isfinite(number) or (isinstance(value, float) and number != value):
        raise ConfigError(f"{name}: {value!r} is not a {kind}; {accepted}")
    if number < lowest:
        raise ConfigError(f"{name}: {value!r} is too small; {accepted}")
    if number > largest:
        raise ConfigError(f"{name}: {value!r} is too large; {accepted}")
    return number


def _text(name: str, value: Any, default: str | None) -> str | None:
    """Text; None where it is the default or the same as an empty text."""
    if name in _FILES and isinstance(value, os.PathLike):
        value = os.fspath(value)
    if name in _LISTS and isinstance(value, list | tuple) and all(isinstance(each, str) for each in value):
        value = ",".join(value)
    if value is None and not default:
        return default
    shown = "the value" if name.endswith(_SECRET) else repr(value)
    if not isinstance(value, str):
        kind = "a path" if name in _FILES else "a text"
        raise ConfigError(f"{name}: {shown} is of type {type(value).__name__}; expected {kind} (str)")
    if not value and name in _NOT_EMPTY:
        raise ConfigError(f"{name} is empty; expected a text of 1 to {_LONGEST_TEXT} bytes")
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise ConfigError(f"{name}: {shown} has characters that UTF-8 cannot encode") from None
    if size > _LONGEST_TEXT and not name.startswith("ssl_"):  # certificates may be long: they are not sent as strings
        raise ConfigError(f"{name} has {size} bytes; at most {_LONGEST_TEXT} are possible")
    return value


def _acks(value: Any) -> int:
    try:
        return {"all": -1, "-1": -1, "0": 0, "1": 1}[str(value).strip().lower()]
    except KeyError:
        raise ConfigError(f"acks: {value!r} is not one of all, 0, 1") from None
