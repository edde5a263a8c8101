"""Replication throttles of reassignments: set them before, remove them afterwards (KIP-73, KIP-113)."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Final

from odradek.client.admin.configs import AlterConfig, ConfigResource
from odradek.client.admin.enums import AlterConfigOp, ConfigResourceType
from odradek.client.admin.requests import raise_first
from odradek.client.reports.reassignment import Move, throttled_followers, throttled_leaders
from odradek.wire.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from odradek.client.admin import Admin

BROKER_RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LOG_DIR_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"


async def throttle(
    admin: Admin, moves: Collection[Move], brokers: Iterable[int], *, rate: int | None, log_dir_rate: int | None
) -> None:
    """Limit what the brokers (each in bytes per second) spend on the moves; None sets no limit. Raises KafkaError."""
    settings = []
    if rate is not None:
        settings += [AlterConfig(name, str(rate)) for name in BROKER_RATES]
        topics: dict[ConfigResource, list[AlterConfig]] = {}
        for name, replicas in (
            (LEADER_REPLICAS, throttled_leaders(moves)),
            (FOLLOWER_REPLICAS, throttled_followers(moves)),
        ):
            for topic, entries in replicas.items():
                change = AlterConfig(name, ",".join(entries), AlterConfigOp.APPEND)
                topics.setdefault(ConfigResource(ConfigResourceType.TOPIC, topic), []).append(change)
        if topics:
            raise_first(await admin.alter_configs(topics))
    if log_dir_rate is not None:
        settings.append(AlterConfig(LOG_DIR_RATE, str(log_dir_rate)))
    if settings:
        resources = [ConfigResource(ConfigResourceType.BROKER, str(each)) for each in brokers]
        raise_first(await admin.alter_configs(dict.fromkeys(resources, settings)))


async def remove_throttles(admin: Admin, topics: Iterable[str], brokers: Iterable[int]) -> None:
    """Remove the limits from brokers, and the lists of limited replicas from topics. Raises KafkaError."""
    rates = [AlterConfig(name, None, AlterConfigOp.DELETE) for name in (*BROKER_RATES, LOG_DIR_RATE)]
    lists = [AlterConfig(name, None, AlterConfigOp.DELETE) for name in (LEADER_REPLICAS, FOLLOWER_REPLICAS)]
    changes = {ConfigResource(ConfigResourceType.BROKER, str(each)): rates for each in brokers}
    changes.update({ConfigResource(ConfigResourceType.TOPIC, each): lists for each in topics})
    outcome = await admin.alter_configs(changes)
    gone = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
    raise_first({k: e for k, e in outcome.items() if not (isinstance(e, KafkaError) and e.code in gone)})
