"""The enumerations of the admin client, with Kafka's names and wire values.

A value that this version does not know reads as UNKNOWN, as in Java's client.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, StrEnum
from typing import Final, Self


class ConfigResourceType(IntEnum):
    """What a setting belongs to (Kafka's ConfigResource.Type)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    @classmethod
    def _missing_(cls, _value: object) -> Self | None:
        return cls.UNKNOWN


class AlterConfigOp(IntEnum):
    """How a setting changes (KIP-339). APPEND and SUBTRACT are for lists."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigSource(StrEnum):
    """Where the value of a setting comes from (Kafka's ConfigEntry.ConfigSource)."""

    UNKNOWN = "UNKNOWN"
    DYNAMIC_TOPIC_CONFIG = "DYNAMIC_TOPIC_CONFIG"
    DYNAMIC_BROKER_CONFIG = "DYNAMIC_BROKER_CONFIG"
    DYNAMIC_DEFAULT_BROKER_CONFIG = "DYNAMIC_DEFAULT_BROKER_CONFIG"
    STATIC_BROKER_CONFIG = "STATIC_BROKER_CONFIG"
    DEFAULT_CONFIG = "DEFAULT_CONFIG"
    DYNAMIC_BROKER_LOGGER_CONFIG = "DYNAMIC_BROKER_LOGGER_CONFIG"
    DYNAMIC_CLIENT_METRICS_CONFIG = "DYNAMIC_CLIENT_METRICS_CONFIG"
    DYNAMIC_GROUP_CONFIG = "DYNAMIC_GROUP_CONFIG"

    @classmethod
    def from_wire(cls, code: int) -> ConfigSource:
        """The source of a number in a DescribeConfigs answer."""
        sources = tuple(cls)
        return sources[code] if 0 <= code < len(sources) else cls.UNKNOWN


class ElectionType(IntEnum):
    """PREFERRED elects the first replica, UNCLEAN any live one if no replica in sync is alive (KIP-460)."""

    PREFERRED = 0
    UNCLEAN = 1


class TransactionState(StrEnum):
    """State of a transaction at its coordinator (KIP-664)."""

    UNKNOWN = "Unknown"
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    @classmethod
    def _missing_(cls, _value: object) -> Self | None:
        return cls.UNKNOWN


class GroupState(StrEnum):
    """State of a group of any protocol (Kafka's GroupState)."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"

    @classmethod
    def _missing_(cls, _value: object) -> Self | None:
        return cls.UNKNOWN


class GroupType(StrEnum):
    """The protocol that the members of a group speak (KIP-848)."""

    UNKNOWN = "Unknown"
    CLASSIC = "Classic"
    CONSUMER = "Consumer"
    SHARE = "Share"
    STREAMS = "Streams"

    @classmethod
    def _missing_(cls, value: object) -> GroupType:
        spelling = {each.value.lower(): each for each in cls}
        return spelling.get(str(value).lower(), cls.UNKNOWN)


class GroupProtocolType(StrEnum):
    """What the members of a group do; programs may have types of their own, which stay texts."""

    SIMPLE = ""
    """Offsets are committed, and there are no members."""
    CONSUMER = "consumer"
    """Consumers share partitions."""
    CONNECT = "connect"
    """Workers of Kafka Connect share connectors."""
    SHARE = "share"
    """Members of a share group."""
    STREAMS = "streams"
    """Members of a streams group."""

    @classmethod
    def from_wire(cls, name: str) -> GroupProtocolType | str:
        """The member of that name; the name itself where there is none."""
        return _PROTOCOL_TYPES.get(name, name)


_PROTOCOL_TYPES: Final[Mapping[str, GroupProtocolType]] = {str(each): each for each in GroupProtocolType}


class ScramMechanism(IntEnum):
    """Mechanisms of SCRAM credentials (KIP-554)."""

    UNKNOWN = 0
    SCRAM_SHA_256 = 1
    SCRAM_SHA_512 = 2

    @classmethod
    def _missing_(cls, _value: object) -> Self | None:
        return cls.UNKNOWN

    @property
    def mechanism_name(self) -> str:
        """The name as SASL writes it, for instance `SCRAM-SHA-256`."""
        return self.name.replace("_", "-")

    @property
    def hash_name(self) -> str:
        """The hash function's name in `hashlib`."""
        return {1: "sha256", 2: "sha512"}[self.value]


class FeatureUpgradeType(IntEnum):
    """Which changes of a feature's level are permitted (KIP-584, KIP-778)."""

    UNKNOWN = 0
    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3

    @classmethod
    def _missing_(cls, _value: object) -> Self | None:
        return cls.UNKNOWN


class QuotaEntityType(StrEnum):
    """What a client quota limits (KIP-546, KIP-612)."""

    USER = "user"
    CLIENT_ID = "client-id"
    IP = "ip"


class QuotaMatch(IntEnum):
    """How a quota filter matches an entity: one name, the default entity, or every entity that is set."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2
