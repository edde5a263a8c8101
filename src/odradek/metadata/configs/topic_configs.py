"""Every configuration of a topic of Apache Kafka 4.3, and our own, which begin with `odradek.`"""

from odradek.metadata.configs.definitions import (
    ConfigDefinition,
    ConfigType,
    Importance,
    RangeOr,
    Scope,
    ThrottledReplicas,
    at_least,
    between,
    one_of,
)

_c = ConfigDefinition
BOOLEAN = ConfigType.BOOLEAN
DOUBLE = ConfigType.DOUBLE
INT = ConfigType.INT
LIST = ConfigType.LIST
LONG = ConfigType.LONG
STRING = ConfigType.STRING
MEDIUM = Importance.MEDIUM
READ_ONLY = Scope.READ_ONLY

TOPIC_CONFIGS = (
    _c("segment.bytes", INT, "1073741824", at_least(1048576)),
    _c("segment.ms", LONG, "604800000", at_least(1)),
    _c("segment.jitter.ms", LONG, "0", at_least(0)),
    _c("segment.index.bytes", INT, "10485760", at_least(4)),
    _c("flush.messages", LONG, "9223372036854775807", at_least(1)),
    _c("flush.ms", LONG, "9223372036854775807", at_least(0)),
    _c("retention.bytes", LONG, "-1"),
    _c("retention.ms", LONG, "604800000", at_least(-1)),
    _c("max.message.bytes", INT, "1048588", at_least(0)),
    _c("index.interval.bytes", INT, "4096", at_least(0)),
    _c("delete.retention.ms", LONG, "86400000", at_least(0)),
    _c("min.compaction.lag.ms", LONG, "0", at_least(0)),
    _c("max.compaction.lag.ms", LONG, "9223372036854775807", at_least(1)),
    _c("file.delete.delay.ms", LONG, "60000", at_least(0)),
    _c("min.cleanable.dirty.ratio", DOUBLE, "0.5", between(0, 1)),
    _c("cleanup.policy", LIST, "delete", one_of("compact", "delete")),
    _c("unclean.leader.election.enable", BOOLEAN, "false"),
    _c("min.insync.replicas", INT, "1", at_least(1)),
    _c("compression.type", STRING, "producer", one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
    _c("compression.gzip.level", INT, "-1", RangeOr(1, 9, -1)),
    _c("compression.lz4.level", INT, "9", between(1, 17)),
    _c("compression.zstd.level", INT, "3", between(-131072, 22)),
    _c("preallocate", BOOLEAN, "false"),
    _c("message.timestamp.type", STRING, "CreateTime", one_of("CreateTime", "LogAppendTime")),
    _c("message.timestamp.before.max.ms", LONG, "9223372036854775807", at_least(0)),
    _c("message.timestamp.after.max.ms", LONG, "3600000", at_least(0)),
    _c("leader.replication.throttled.replicas", LIST, "", ThrottledReplicas()),
    _c("follower.replication.throttled.replicas", LIST, "", ThrottledReplicas()),
    _c("remote.storage.enable", BOOLEAN, "false"),
    _c("local.retention.ms", LONG, "-2", at_least(-2)),
    _c("local.retention.bytes", LONG, "-2", at_least(-2)),
    _c("remote.log.copy.disable", BOOLEAN, "false"),
    _c("remote.log.delete.on.disable", BOOLEAN, "false"),
    _c("internal.segment.bytes", INT, None, None, MEDIUM, READ_ONLY, False),
    # What `odradek tables run --warehouse` makes of a topic; brokers only keep them.
    _c("odradek.table.format", STRING, "none", one_of("none", "delta", "iceberg")),
    _c("odradek.table.mode", STRING, "append", one_of("append", "upsert")),
    _c("odradek.table.columns", STRING, ""),
    _c("odradek.table.partition.by", STRING, ""),
)
