"""Every configuration of a group of Apache Kafka 4.3 (KIP-848, KIP-932, KIP-1071)."""

from odradek.metadata.configs.definitions import ConfigDefinition, ConfigType, ShareOffsetReset, at_least, one_of

_c = ConfigDefinition
BOOLEAN = ConfigType.BOOLEAN
INT = ConfigType.INT
STRING = ConfigType.STRING

GROUP_CONFIGS = (
    _c("consumer.session.timeout.ms", INT, "45000", at_least(1)),
    _c("consumer.heartbeat.interval.ms", INT, "5000", at_least(1)),
    _c("consumer.assignment.interval.ms", INT, "1000", at_least(0)),
    _c("share.session.timeout.ms", INT, "45000", at_least(1)),
    _c("share.heartbeat.interval.ms", INT, "5000", at_least(1)),
    _c("share.record.lock.duration.ms", INT, "30000", at_least(1000)),
    _c("share.delivery.count.limit", INT, "5", at_least(2)),
    _c("share.partition.max.record.locks", INT, "2000", at_least(100)),
    _c("share.auto.offset.reset", STRING, "latest", ShareOffsetReset()),
    _c("share.isolation.level", STRING, "read_uncommitted", one_of("read_committed", "read_uncommitted")),
    _c("share.renew.acknowledge.enable", BOOLEAN, "true"),
    _c("share.assignment.interval.ms", INT, "1000", at_least(0)),
    _c("streams.session.timeout.ms", INT, "45000", at_least(1)),
    _c("streams.heartbeat.interval.ms", INT, "5000", at_least(1)),
    _c("streams.num.standby.replicas", INT, "0", at_least(0)),
    _c("streams.initial.rebalance.delay.ms", INT, "3000", at_least(0)),
    _c("streams.assignment.interval.ms", INT, "1000", at_least(0)),
)
