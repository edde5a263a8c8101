"""The parts of a broker are built with the documented defaults, and each of their settings comes from its own name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from odradek.broker.assembly import _long_work
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.broker.coordinators.groups import group_settings
from odradek.broker.coordinators.transactions import transaction_settings
from odradek.broker.opening import _directory_settings
from odradek.broker.replication.replication_runtime import _fetch_settings
from odradek.groups.settings import GroupSettings
from odradek.log.config import LogConfig
from odradek.log.directories.placed_logs import DEFAULT_SETTINGS
from odradek.log.writing.write_queue import WriteSettings
from odradek.metadata.configs.catalog import BROKER
from odradek.metadata.configs.own_configs import ODRADEK_CONFIGS
from odradek.ports.clock import SystemClock
from odradek.transactions.records import TV_2
from odradek.transactions.settings import TransactionSettings


def newest_version() -> int:
    return TV_2


def of_writes(settings: WriteSettings) -> dict[str, float]:
    return {name: getattr(settings, name) for name in WriteSettings.__slots__}


def test_group_settings_have_the_documented_defaults() -> None:
    assert group_settings(BrokerConfig({})) == GroupSettings()


def test_each_group_setting_comes_from_its_own_name() -> None:
    given = {
        "group.min.session.timeout.ms": 1,
        "group.max.session.timeout.ms": 2,
        "group.initial.rebalance.delay.ms": 3,
        "group.max.size": 4,
        "offset.metadata.max.bytes": 5,
        "offsets.retention.minutes": 6,
        "offsets.retention.check.interval.ms": 7,
        "offsets.commit.timeout.ms": 8,
        "group.consumer.session.timeout.ms": 45_001,
        "group.consumer.heartbeat.interval.ms": 5_001,
        "group.consumer.assignment.interval.ms": 11,
        "group.consumer.max.size": 12,
        "group.consumer.assignors": "range",
        "group.consumer.migration.policy": "upgrade",
        "odradek.group.unsettled.heartbeat.interval.ms": 15,
        "odradek.group.new.partitions.from.start": "false",
    }
    config = BrokerConfig({name: str(value) for name, value in given.items()})
    assert group_settings(config) == GroupSettings(
        1, 2, 3, 4, 300_000, 5, 6 * 60_000, 7, 8, 45_001, 5_001, 11, 12, ("range",), "upgrade", 15, False
    )


def test_transaction_settings_have_the_documented_defaults() -> None:
    found = transaction_settings(BrokerConfig({}), newest_version)
    assert found == TransactionSettings(transaction_version=newest_version)
    assert TransactionSettings().transaction_version() == TV_2


def test_each_transaction_setting_comes_from_its_own_name() -> None:
    given = {
        "transaction.max.timeout.ms": "1",
        "transactional.id.expiration.ms": "2",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "3",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "4",
        "request.timeout.ms": "5",
    }
    found = transaction_settings(BrokerConfig(given), newest_version)
    assert found == TransactionSettings(1, 2, 3, 4, 5, newest_version)


def test_settings_of_followers_have_the_documented_defaults() -> None:
    assert _fetch_settings(BrokerConfig({})) == (500, 1, 10 << 20, 1 << 20, 1000, 30_000)
    given = {
        "replica.fetch.wait.max.ms": "1",
        "replica.fetch.min.bytes": "2",
        "replica.fetch.response.max.bytes": "3",
        "replica.fetch.max.bytes": "4",
        "replica.fetch.backoff.ms": "5",
        "replica.socket.timeout.ms": "6",
    }
    assert _fetch_settings(BrokerConfig(given)) == (1, 2, 3, 4, 5, 6)


def test_settings_of_directories_have_the_documented_defaults() -> None:
    found = _directory_settings(BrokerConfig({}))
    assert of_writes(found.writes) == of_writes(WriteSettings())
    assert (found.adopts, found.joins_quorum, list(found.cordoned())) == (
        DEFAULT_SETTINGS.adopts,
        DEFAULT_SETTINGS.joins_quorum,
        list(DEFAULT_SETTINGS.cordoned()),
    )
    given = {
        "odradek.write.inline.max.bytes": "1",
        "odradek.write.stall.ms": "2",
        "odradek.write.probation.ms": "3",
        "odradek.adopt.partitions": "true",
    }
    found = _directory_settings(BrokerConfig(given))
    assert of_writes(found.writes) == {"inline_bytes": 1, "stall_s": 0.002, "probation_s": 0.003}
    assert found.adopts


def test_log_obeys_the_documented_defaults() -> None:
    assert LogConfig.build(BrokerConfig({}).topic_settings({})) == LogConfig()
    own = {each.name: each for each in ODRADEK_CONFIGS}
    documented: dict[str, Any] = {
        "max_record_headers": own["odradek.max.record.headers"].default,
        "max_decompressed_bytes": own["odradek.max.decompressed.bytes"].default,
        "batch_validation": own["odradek.batch.validation"].default,
    }
    assert {name: str(getattr(LogConfig(), name)) for name in documented} == documented


def test_log_has_the_documented_default_of_every_broker_setting() -> None:
    config = LogConfig()
    documented = {
        "log.segment.bytes": config.segment_bytes,
        "log.index.size.max.bytes": config.segment_index_bytes,
        "log.index.interval.bytes": config.index_interval_bytes,
        "log.retention.bytes": config.retention_bytes,
        "log.cleaner.delete.retention.ms": config.delete_retention_ms,
        "log.segment.delete.delay.ms": config.file_delete_delay_ms,
        "log.cleaner.min.cleanable.ratio": config.min_cleanable_dirty_ratio,
        "message.max.bytes": config.max_message_bytes,
        "log.flush.interval.messages": config.flush_messages,
        "min.insync.replicas": config.min_insync_replicas,
        "compression.gzip.level": config.compression_gzip_level,
        "compression.lz4.level": config.compression_lz4_level,
        "compression.zstd.level": config.compression_zstd_level,
    }
    assert {name: str(value) for name, value in documented.items()} == {
        name: str(BROKER[name].default) for name in documented
    }
    assert config.retention_ms == int(BROKER["log.retention.hours"].default or 0) * 3_600_000
    assert config.segment_ms == int(BROKER["log.roll.hours"].default or 0) * 3_600_000
    assert not config.compact
    assert config.delete


def test_slices_of_long_requests_follow_a_change_of_their_setting() -> None:
    config = BrokerConfig({})
    ports: Any = SimpleNamespace(clock=SystemClock())
    work = _long_work(config, ports)
    assert not work.is_long(2)
    config.apply_dynamic({"odradek.loop.slice.ms": "0"}, {})
    assert work.is_long(2), "a slice is the least that can be done"
