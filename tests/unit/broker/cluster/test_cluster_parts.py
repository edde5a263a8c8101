"""The settings of logs, as the broker's and the topic's settings make them."""

from __future__ import annotations

import pytest

from odradek.broker.cluster.cluster_parts import LogConfigs
from odradek.broker.configuration.broker_config import BrokerConfig
from odradek.metadata.image import Topic

WEEK_MS = 7 * 24 * 60 * 60 * 1000


def topic(name: str, **configs: str) -> Topic:
    settings = {key.replace("_", "."): value for key, value in configs.items()}
    return Topic(name, name.encode().ljust(16, b"."), (), configs=settings)


def test_topics_with_the_same_settings_share_their_log_config() -> None:
    configs = LogConfigs(BrokerConfig({}))
    assert configs(topic("a", retention_ms="1000")) is configs(topic("b", retention_ms="1000"))
    assert configs(topic("c", retention_ms="2000")).retention_ms == 2000
    assert configs(topic("d")).retention_ms == WEEK_MS


def test_log_configs_follow_the_dynamic_settings_of_the_broker() -> None:
    config = BrokerConfig({})
    configs = LogConfigs(config)
    assert configs(topic("a")).retention_ms == WEEK_MS
    config.apply_dynamic({}, {"log.retention.ms": "5000"})
    assert configs(topic("a")).retention_ms == 5000
    config.apply_dynamic({}, {})
    assert configs(topic("a")).retention_ms == WEEK_MS


def test_settings_that_this_version_rejects_are_ignored_and_others_are_not(caplog: pytest.LogCaptureFixture) -> None:
    """Apache Kafka before 4.0 accepts segments below 1 MiB. The image with one ended each broker of the cluster."""
    config = BrokerConfig({})
    found = LogConfigs(config)(topic("a", segment_bytes="100000", retention_ms="1000", unknown="x"))
    assert (found.segment_bytes, found.retention_ms) == (config.number("log.segment.bytes"), 1000)
    assert "setting segment.bytes of topic a is ignored: Invalid value 100000" in caplog.text
