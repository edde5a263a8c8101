"""What each accepted setting does in this version: it is implemented, harmless (no effect) or refused.

A harmless setting tunes machinery that Odradek does not have; the broker accepts it and names it once at the start. A
refused setting restricts, protects, or moves data or leadership: a broker that ignored it would serve clients, or lead
partitions, that its operator meant to exclude. Values that change nothing are accepted for refused settings, too.
`docs/SETTINGS.md` is made of these tables.
"""

from __future__ import annotations

from typing import NamedTuple


class Harmless(NamedTuple):
    """Settings that are accepted without effect; `purpose` is what they do in Apache Kafka."""

    purpose: str
    names: tuple[str, ...]


class Refused(NamedTuple):
    """Settings that are an error.

    `reason` says why; `accepted` are the texts that are accepted beside the default, `accepted_if` describes a rule
    that `odradek.broker.configuration.refusals` checks against the rest of the configuration.
    """

    reason: str
    names: tuple[str, ...]
    accepted: tuple[str, ...] = ()
    accepted_if: str = ""


DYNAMIC_TLS_SETTINGS = frozenset(
    (
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    )
)
"""Settings of stores that may be set for one listener while a broker runs (KIP-226)."""

TLS_SETTINGS = DYNAMIC_TLS_SETTINGS | frozenset(
    (
        "odradek.ssl.role.attribute",
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.principal.mapping.rules",
        "ssl.protocol",
    )
)
"""Implemented, for all listeners and for one (`listener.name.NAME.…`); those of this list in the file only."""

SASL_SETTINGS = frozenset(
    (
        "connections.max.reauth.ms",
        "odradek.oauthbearer.allowed.urls",
        "odradek.oauthbearer.required.scopes",
        "odradek.oauthbearer.role.claim.name",
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "sasl.kerberos.principal.to.local.rules",
        "sasl.kerberos.service.name",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "sasl.server.max.receive.size",
    )
)
"""Implemented, for all listeners, for one, or for one and a mechanism (`listener.name.NAME.MECHANISM.…`), in the file
only."""

FILE_SETTINGS = TLS_SETTINGS | SASL_SETTINGS
"""Implemented, in the file only."""

QUORUM_SETTINGS = frozenset(
    (
        "broker.heartbeat.interval.ms",
        "controller.quorum.fetch.timeout.ms",
        "controller.quorum.request.timeout.ms",
        "controller.quorum.retry.backoff.ms",
        "initial.broker.registration.timeout.ms",
        "metadata.log.max.record.bytes.between.snapshots",
        "metadata.log.max.snapshot.interval.ms",
        "metadata.log.segment.bytes",
        "sasl.mechanism.controller.protocol",
        "sasl.mechanism.inter.broker.protocol",
    )
)
"""Implemented, for nodes of a KRaft cluster (`process.roles=broker` or `controller`)."""

CONTROLLER_SETTINGS = frozenset(
    (
        "controller.quorum.append.linger.ms",
        "controller.quorum.auto.join.enable",
        "controller.quorum.election.backoff.max.ms",
        "controller.quorum.election.timeout.ms",
    )
)
"""Implemented, for a controller of a KRaft cluster (`process.roles=controller`)."""

IMPLEMENTED = (
    FILE_SETTINGS
    | QUORUM_SETTINGS
    | CONTROLLER_SETTINGS
    | frozenset(
        (
            "advertised.host.name",
            "advertised.listeners",
            "advertised.port",
            "allow.everyone.if.no.acl.found",
            "authorizer.class.name",
            "auto.create.topics.enable",
            "auto.leader.rebalance.enable",
            "broker.id",
            "broker.rack",
            "broker.session.timeout.ms",
            "compression.gzip.level",
            "compression.lz4.level",
            "compression.type",
            "compression.zstd.level",
            "connection.failed.authentication.delay.ms",
            "connections.max.idle.ms",
            "control.plane.listener.name",
            "controlled.shutdown.enable",
            "controlled.shutdown.max.retries",
            "controlled.shutdown.retry.backoff.ms",
            "controller.listener.names",
            "controller.quota.window.num",
            "controller.quota.window.size.seconds",
            "controller.socket.timeout.ms",
            "cordoned.log.dirs",
            "default.replication.factor",
            "delegation.token.expiry.time.ms",
            "delegation.token.master.key",
            "delegation.token.max.lifetime.ms",
            "delegation.token.secret.key",
            "delete.topic.enable",
            "fetch.max.bytes",
            "follower.replication.throttled.rate",
            "group.consumer.assignment.interval.ms",
            "group.consumer.assignors",
            "group.consumer.heartbeat.interval.ms",
            "group.consumer.max.assignment.interval.ms",
            "group.consumer.max.heartbeat.interval.ms",
            "group.consumer.max.session.timeout.ms",
            "group.consumer.max.size",
            "group.consumer.migration.policy",
            "group.consumer.min.assignment.interval.ms",
            "group.consumer.min.heartbeat.interval.ms",
            "group.consumer.min.session.timeout.ms",
            "group.consumer.session.timeout.ms",
            "group.coordinator.rebalance.protocols",
            "group.initial.rebalance.delay.ms",
            "group.max.session.timeout.ms",
            "group.max.size",
            "group.min.session.timeout.ms",
            "host.name",
            "inter.broker.listener.name",
            "java.security.auth.login.config",
            "leader.imbalance.check.interval.seconds",
            "leader.imbalance.per.broker.percentage",
            "leader.replication.throttled.rate",
            "listener.security.protocol.map",
            "listeners",
            "log.cleaner.backoff.ms",
            "log.cleaner.dedupe.buffer.size",
            "log.cleaner.delete.retention.ms",
            "log.cleaner.enable",
            "log.cleaner.io.max.bytes.per.second",
            "log.cleaner.max.compaction.lag.ms",
            "log.cleaner.min.cleanable.ratio",
            "log.cleaner.min.compaction.lag.ms",
            "log.cleaner.threads",
            "log.cleanup.policy",
            "log.dir",
            "log.dirs",
            "log.flush.interval.messages",
            "log.flush.interval.ms",
            "log.flush.offset.checkpoint.interval.ms",
            "log.flush.scheduler.interval.ms",
            "log.index.interval.bytes",
            "log.index.size.max.bytes",
            "log.message.timestamp.after.max.ms",
            "log.message.timestamp.before.max.ms",
            "log.message.timestamp.type",
            "log.retention.bytes",
            "log.retention.check.interval.ms",
            "log.retention.hours",
            "log.retention.minutes",
            "log.retention.ms",
            "log.roll.hours",
            "log.roll.jitter.hours",
            "log.roll.jitter.ms",
            "log.roll.ms",
            "log.segment.bytes",
            "log.segment.delete.delay.ms",
            "max.connection.creation.rate",
            "max.connections",
            "max.connections.per.ip",
            "max.connections.per.ip.overrides",
            "max.incremental.fetch.session.cache.slots",
            "max.request.partition.size.limit",
            "message.max.bytes",
            "min.insync.replicas",
            "node.id",
            "num.partitions",
            "num.recovery.threads.per.data.dir",
            "num.replica.fetchers",
            "odradek.adopt.partitions",
            "odradek.audit.exclude.events",
            "odradek.audit.exclude.principals",
            "odradek.audit.exclude.topics",
            "odradek.audit.queue.bytes",
            "odradek.audit.topic.enable",
            "odradek.audit.topic.min.isr",
            "odradek.audit.topic.num.partitions",
            "odradek.audit.topic.replication.factor",
            "odradek.audit.topic.retention.ms",
            "odradek.audit.topic.segment.bytes",
            "odradek.authorizer.mode",
            "odradek.batch.validation",
            "odradek.group.access",
            "odradek.group.new.partitions.from.start",
            "odradek.group.unsettled.heartbeat.interval.ms",
            "odradek.health.free.space.min.percent",
            "odradek.http.listener",
            "odradek.idle.check.interval.ms",
            "odradek.leadership.lease.ms",
            "odradek.login.failure.window.ms",
            "odradek.login.max.failures",
            "odradek.loop.slice.ms",
            "odradek.max.control.request.bytes",
            "odradek.max.decompressed.bytes",
            "odradek.max.in.flight.requests",
            "odradek.max.record.headers",
            "odradek.max.request.partitions",
            "odradek.max.request.topics",
            "odradek.metadata.store",
            "odradek.metrics.max.groups",
            "odradek.metrics.max.topics",
            "odradek.metrics.partitions",
            "odradek.peer.setup.timeout.ms",
            "odradek.peer.silence.timeout.ms",
            "odradek.self.fence.margin.ms",
            "odradek.slow.loop.ms",
            "odradek.slow.request.ms",
            "odradek.telemetry.queue.bytes",
            "odradek.telemetry.topic",
            "odradek.unauthenticated.timeout.ms",
            "odradek.write.inline.max.bytes",
            "odradek.write.probation.ms",
            "odradek.write.stall.ms",
            "odradek.zookeeper.digest",
            "odradek.zookeeper.wait.ms",
            "offset.metadata.max.bytes",
            "offsets.commit.timeout.ms",
            "offsets.retention.check.interval.ms",
            "offsets.retention.minutes",
            "offsets.topic.num.partitions",
            "offsets.topic.replication.factor",
            "offsets.topic.segment.bytes",
            "port",
            "process.roles",
            "producer.id.expiration.ms",
            "queued.max.request.bytes",
            "quota.window.num",
            "quota.window.size.seconds",
            "replica.alter.log.dirs.io.max.bytes.per.second",
            "replica.fetch.backoff.ms",
            "replica.fetch.max.bytes",
            "replica.fetch.min.bytes",
            "replica.fetch.response.max.bytes",
            "replica.fetch.wait.max.ms",
            "replica.lag.time.max.ms",
            "replica.selector.class",
            "replica.socket.timeout.ms",
            "replication.quota.window.num",
            "replication.quota.window.size.seconds",
            "request.timeout.ms",
            "security.inter.broker.protocol",
            "socket.request.max.bytes",
            "super.users",
            "telemetry.max.bytes",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms",
            "transaction.max.timeout.ms",
            "transaction.partition.verification.enable",
            "transaction.remove.expired.transaction.cleanup.interval.ms",
            "transaction.state.log.min.isr",
            "transaction.state.log.num.partitions",
            "transaction.state.log.replication.factor",
            "transaction.state.log.segment.bytes",
            "transactional.id.expiration.ms",
            "unclean.leader.election.enable",
            "zookeeper.connect",
            "zookeeper.connection.timeout.ms",
            "zookeeper.sasl.client",
            "zookeeper.sasl.client.username",
            "zookeeper.sasl.clientconfig",
            "zookeeper.server.principal",
            "zookeeper.session.timeout.ms",
            "zookeeper.set.acl",
            "zookeeper.ssl.cipher.suites",
            "zookeeper.ssl.client.enable",
            "zookeeper.ssl.enabled.protocols",
            "zookeeper.ssl.endpoint.identification.algorithm",
            "zookeeper.ssl.keystore.location",
            "zookeeper.ssl.keystore.password",
            "zookeeper.ssl.keystore.type",
            "zookeeper.ssl.truststore.location",
            "zookeeper.ssl.truststore.password",
            "zookeeper.ssl.truststore.type",
        )
    )
)

_NO_SHARE_GROUPS = "share groups (KIP-932), which this version does not serve"
_NO_STREAMS_GROUPS = "streams groups (KIP-1071), which this version does not serve"
_NO_TIERS = "tiered storage, which is off"

HARMLESS = (
    Harmless(
        "sizes of thread pools; one event loop serves all requests",
        (
            "background.threads",
            "group.coordinator.background.threads",
            "group.coordinator.threads",
            "num.io.threads",
            "num.network.threads",
            "num.replica.alter.log.dirs.threads",
        ),
    ),
    Harmless(
        "sizes of socket buffers and backlogs; the operating system's are used",
        (
            "replica.socket.receive.buffer.bytes",
            "socket.listen.backlog.size",
            "socket.receive.buffer.bytes",
            "socket.send.buffer.bytes",
        ),
    ),
    Harmless(
        "a bound on queued requests; odradek.max.in.flight.requests and queued.max.request.bytes bound them here",
        ("queued.max.requests",),
    ),
    Harmless(
        "housekeeping of Kafka's request queues; nothing accumulates here",
        (
            "delete.records.purgatory.purge.interval.requests",
            "fetch.purgatory.purge.interval.requests",
            "producer.purgatory.purge.interval.requests",
            "share.fetch.purgatory.purge.interval.requests",
        ),
    ),
    Harmless(
        "fine tuning of KRaft's metadata log, its snapshots and its quorum, which is fixed here",
        (
            "controller.performance.always.log.threshold.ms",
            "controller.performance.sample.period.ms",
            "controller.quorum.fetch.max.bytes",
            "controller.quorum.fetch.snapshot.max.bytes",
            "internal.metadata.delete.delay.millis",
            "internal.metadata.log.segment.bytes",
            "internal.metadata.max.batch.size.in.bytes",
            "metadata.log.segment.ms",
            "metadata.max.retention.bytes",
            "metadata.max.retention.ms",
            "server.max.startup.time.ms",
        ),
    ),
    Harmless(
        "no-ops by which Kafka's active controller learns that a majority follows it; here the followers' fetches show "
        "it. Leave it at 500 on controllers of Apache Kafka: leases of brokers depend on it (decision 0011)",
        ("metadata.max.idle.interval.ms",),
    ),
    Harmless(
        "connections of Kafka's brokers to ZooKeeper and of its controller to brokers",
        (
            "controller.message.queue.size",
            "zookeeper.clientCnxnSocket",
            "zookeeper.max.in.flight.requests",
            "zookeeper.metadata.migration.min.batch.size",
            "zookeeper.sync.time.ms",
        ),
    ),
    Harmless(
        "the name of TLS in Java; zookeeper.ssl.enabled.protocols has the versions",
        ("zookeeper.ssl.protocol",),
    ),
    Harmless(
        "ids for brokers without broker.id; without one this broker is 1",
        ("broker.id.generation.enable", "reserved.broker.max.id"),
    ),
    Harmless(
        "versions of protocol and message format while Kafka is upgraded; brokers negotiate, records are v2",
        (
            "inter.broker.protocol.version",
            "log.message.downconversion.enable",
            "log.message.format.version",
            "unstable.api.versions.enable",
            "unstable.feature.versions.enable",
        ),
    ),
    Harmless(
        "timing of connections and retries between brokers",
        (
            "add.partitions.to.txn.retry.backoff.max.ms",
            "add.partitions.to.txn.retry.backoff.ms",
            "socket.connection.setup.timeout.max.ms",
            "socket.connection.setup.timeout.ms",
        ),
    ),
    Harmless(
        "when replicas are called out of sync by messages (Kafka 0.8); replica.lag.time.max.ms decides",
        ("replica.lag.max.messages",),
    ),
    Harmless(
        "a switch for eligible leader replicas (KIP-966), which are always on", ("eligible.leader.replicas.enable",)
    ),
    Harmless(
        "a periodic look for partitions that need an unclean election; they are elected when the setting changes",
        ("unclean.leader.election.interval.ms",),
    ),
    Harmless(
        "buffers and batching of Kafka's coordinators, and how they write their topics",
        (
            "group.coordinator.append.linger.ms",
            "group.coordinator.cached.buffer.max.bytes",
            "group.consumer.regex.refresh.interval.ms",
            "offsets.commit.required.acks",
            "offsets.load.buffer.size",
            "offsets.topic.compression.codec",
            "producer.id.expiration.check.interval.ms",
            "transaction.state.log.load.buffer.size",
        ),
    ),
    Harmless("a switch for the coordinator of KIP-848, which is always on", ("group.coordinator.new.enable",)),
    Harmless(
        "two-phase commit for producers (KIP-939), which this version does not offer",
        ("transaction.two.phase.commit.enable",),
    ),
    Harmless(
        "buffers of the log cleaner, checkpoints, delays and preallocation of files",
        (
            "log.cleaner.io.buffer.load.factor",
            "log.cleaner.io.buffer.size",
            "log.dir.failure.timeout.ms",
            "log.flush.start.offset.checkpoint.interval.ms",
            "log.initial.task.delay.ms",
            "log.preallocate",
            "replica.high.watermark.checkpoint.interval.ms",
        ),
    ),
    Harmless(
        "metrics reporters and JMX; metrics are served by odradek.http.listener",
        (
            "auto.include.jmx.reporter",
            "kafka.metrics.polling.interval.secs",
            "kafka.metrics.reporters",
            "metric.reporters",
            "metrics.num.samples",
            "metrics.recording.level",
            "metrics.sample.window.ms",
        ),
    ),
    Harmless(
        "measuring windows of the throttle for moves between log directories, which paces every read here",
        ("alter.log.dirs.replication.quota.window.num", "alter.log.dirs.replication.quota.window.size.seconds"),
    ),
    Harmless(
        "how often expired delegation tokens are deleted; here with each new one, and none is accepted or shown before",
        ("delegation.token.expiry.check.interval.ms",),
    ),
    Harmless("what Kafka does before its authorizer is ready", ("early.start.listeners",)),
    Harmless(
        "the renewal of a broker's own tickets; a broker accepts logins by its key table, which needs none",
        (
            "sasl.kerberos.kinit.cmd",
            "sasl.kerberos.min.time.before.relogin",
            "sasl.kerberos.ticket.renew.jitter",
            "sasl.kerberos.ticket.renew.window.factor",
        ),
    ),
    Harmless(
        _NO_TIERS,
        (
            "follower.fetch.last.tiered.offset.enable",
            "log.local.retention.bytes",
            "log.local.retention.ms",
            "remote.fetch.max.wait.ms",
            "remote.list.offsets.request.timeout.ms",
            "remote.log.index.file.cache.total.size.bytes",
            "remote.log.index.file.cache.ttl.ms",
            "remote.log.manager.copier.thread.pool.size",
            "remote.log.manager.copy.max.bytes.per.second",
            "remote.log.manager.copy.quota.window.num",
            "remote.log.manager.copy.quota.window.size.seconds",
            "remote.log.manager.expiration.thread.pool.size",
            "remote.log.manager.fetch.max.bytes.per.second",
            "remote.log.manager.fetch.quota.window.num",
            "remote.log.manager.fetch.quota.window.size.seconds",
            "remote.log.manager.follower.thread.pool.size",
            "remote.log.manager.task.interval.ms",
            "remote.log.manager.task.retry.backoff.max.ms",
            "remote.log.manager.task.retry.backoff.ms",
            "remote.log.manager.task.retry.jitter",
            "remote.log.manager.thread.pool.size",
            "remote.log.metadata.custom.metadata.max.bytes",
            "remote.log.metadata.manager.class.name",
            "remote.log.metadata.manager.class.path",
            "remote.log.metadata.manager.impl.prefix",
            "remote.log.metadata.manager.listener.name",
            "remote.log.reader.max.pending.tasks",
            "remote.log.reader.threads",
            "remote.log.storage.manager.class.name",
            "remote.log.storage.manager.class.path",
            "remote.log.storage.manager.impl.prefix",
        ),
    ),
    Harmless(
        _NO_SHARE_GROUPS,
        (
            "group.share.assignment.interval.ms",
            "group.share.assignors",
            "group.share.delivery.count.limit",
            "group.share.enable",
            "group.share.heartbeat.interval.ms",
            "group.share.initialize.retry.interval.ms",
            "group.share.max.assignment.interval.ms",
            "group.share.max.delivery.count.limit",
            "group.share.max.groups",
            "group.share.max.heartbeat.interval.ms",
            "group.share.max.partition.max.record.locks",
            "group.share.max.record.lock.duration.ms",
            "group.share.max.session.timeout.ms",
            "group.share.max.share.sessions",
            "group.share.max.size",
            "group.share.min.assignment.interval.ms",
            "group.share.min.delivery.count.limit",
            "group.share.min.heartbeat.interval.ms",
            "group.share.min.partition.max.record.locks",
            "group.share.min.record.lock.duration.ms",
            "group.share.min.session.timeout.ms",
            "group.share.partition.max.record.locks",
            "group.share.persister.class.name",
            "group.share.record.lock.duration.ms",
            "group.share.session.timeout.ms",
            "share.coordinator.append.linger.ms",
            "share.coordinator.cached.buffer.max.bytes",
            "share.coordinator.cold.partition.snapshot.interval.ms",
            "share.coordinator.load.buffer.size",
            "share.coordinator.snapshot.update.records.per.snapshot",
            "share.coordinator.state.topic.compression.codec",
            "share.coordinator.state.topic.min.isr",
            "share.coordinator.state.topic.num.partitions",
            "share.coordinator.state.topic.prune.interval.ms",
            "share.coordinator.state.topic.replication.factor",
            "share.coordinator.state.topic.segment.bytes",
            "share.coordinator.threads",
            "share.coordinator.write.timeout.ms",
        ),
    ),
    Harmless(
        _NO_STREAMS_GROUPS,
        (
            "group.streams.assignment.interval.ms",
            "group.streams.heartbeat.interval.ms",
            "group.streams.initial.rebalance.delay.ms",
            "group.streams.max.assignment.interval.ms",
            "group.streams.max.heartbeat.interval.ms",
            "group.streams.max.session.timeout.ms",
            "group.streams.max.size",
            "group.streams.max.standby.replicas",
            "group.streams.min.assignment.interval.ms",
            "group.streams.min.heartbeat.interval.ms",
            "group.streams.min.session.timeout.ms",
            "group.streams.num.standby.replicas",
            "group.streams.session.timeout.ms",
        ),
    ),
)

TOPIC_HARMLESS = (
    Harmless("preallocation of files; they grow as they are written", ("preallocate",)),
    Harmless(
        _NO_TIERS,
        ("local.retention.bytes", "local.retention.ms", "remote.log.copy.disable", "remote.log.delete.on.disable"),
    ),
    Harmless("a segment size for Kafka's own tests; segment.bytes decides", ("internal.segment.bytes",)),
)

TOPIC_REFUSED = (Refused("records would have to be in tiered storage, which is off", ("remote.storage.enable",)),)

GROUP_HARMLESS = (
    Harmless(
        _NO_SHARE_GROUPS,
        (
            "share.assignment.interval.ms",
            "share.auto.offset.reset",
            "share.delivery.count.limit",
            "share.heartbeat.interval.ms",
            "share.isolation.level",
            "share.partition.max.record.locks",
            "share.record.lock.duration.ms",
            "share.renew.acknowledge.enable",
            "share.session.timeout.ms",
        ),
    ),
    Harmless(
        _NO_STREAMS_GROUPS,
        (
            "streams.assignment.interval.ms",
            "streams.heartbeat.interval.ms",
            "streams.initial.rebalance.delay.ms",
            "streams.num.standby.replicas",
            "streams.session.timeout.ms",
        ),
    ),
)

_FIXED_TLS = "TLS is OpenSSL's here, which has no such choice"
_NO_SASL = "this version has no logins of brokers and loads no classes"
_NO_POLICY = "this version loads no policy classes, every request would be allowed"
_OTHER_CONTROLLER = "the controller runs in the brokers; this node would lead a cluster of its own"

FILE_ONLY = "it is read from the broker's file, when the broker starts"
"""Why dynamic values of `FILE_SETTINGS` are refused."""
LISTENER_ONLY = "set it for one listener, as listener.name.NAME.{name}"
"""Why dynamic values of `DYNAMIC_TLS_SETTINGS` for all listeners are refused, as in Kafka."""

REFUSED = (
    Refused(_NO_POLICY, ("alter.config.policy.class.name", "create.topic.policy.class.name")),
    Refused(
        "this version loads no quota callback; quotas are set with `odradek configs`", ("client.quota.callback.class",)
    ),
    Refused(
        "quotas are not read from the file; set them with `odradek configs --alter --client-defaults`",
        ("quota.consumer.default", "quota.producer.default"),
    ),
    Refused(
        "use log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms",
        ("log.message.timestamp.difference.max.ms",),
    ),
    Refused("references to secrets are resolved in the broker's file only", ("config.providers",)),
    Refused(
        "this version loads no principal builders; principals are of TLS certificates, by ssl.principal.mapping.rules",
        ("principal.builder.class",),
    ),
    Refused("this version loads no security providers", ("security.providers",)),
    Refused(
        "names of a new certificate are not compared with those of the old one",
        ("ssl.allow.dn.changes", "ssl.allow.san.changes"),
    ),
    Refused(
        _FIXED_TLS,
        (
            "ssl.engine.factory.class",
            "ssl.keymanager.algorithm",
            "ssl.provider",
            "ssl.secure.random.implementation",
            "ssl.trustmanager.algorithm",
        ),
    ),
    Refused(
        _NO_SASL,
        (
            "sasl.client.callback.handler.class",
            "sasl.login.callback.handler.class",
            "sasl.login.class",
            "sasl.login.connect.timeout.ms",
            "sasl.login.read.timeout.ms",
            "sasl.login.refresh.buffer.seconds",
            "sasl.login.refresh.min.period.seconds",
            "sasl.login.refresh.window.factor",
            "sasl.login.refresh.window.jitter",
            "sasl.login.retry.backoff.max.ms",
            "sasl.login.retry.backoff.ms",
            "sasl.oauthbearer.assertion.algorithm",
            "sasl.oauthbearer.assertion.claim.aud",
            "sasl.oauthbearer.assertion.claim.exp.seconds",
            "sasl.oauthbearer.assertion.claim.iss",
            "sasl.oauthbearer.assertion.claim.jti.include",
            "sasl.oauthbearer.assertion.claim.nbf.seconds",
            "sasl.oauthbearer.assertion.claim.sub",
            "sasl.oauthbearer.assertion.file",
            "sasl.oauthbearer.assertion.private.key.file",
            "sasl.oauthbearer.assertion.private.key.passphrase",
            "sasl.oauthbearer.assertion.template.file",
            "sasl.oauthbearer.client.credentials.client.id",
            "sasl.oauthbearer.client.credentials.client.secret",
            "sasl.oauthbearer.jwt.retriever.class",
            "sasl.oauthbearer.jwt.validator.class",
            "sasl.oauthbearer.scope",
            "sasl.oauthbearer.token.endpoint.url",
        ),
    ),
    Refused(
        "this version loads no classes; tokens of OAUTHBEARER are checked as by OAuthBearerValidatorCallbackHandler",
        ("sasl.server.callback.handler.class",),
        accepted=(
            "",
            "org.apache.kafka.common.security.oauthbearer.oauthbearervalidatorcallbackhandler",
            "org.apache.kafka.common.security.oauthbearer.secured.oauthbearervalidatorcallbackhandler",
        ),
    ),
    Refused(
        "passwords that are set while the broker runs cannot be encrypted",
        (
            "password.encoder.cipher.algorithm",
            "password.encoder.iterations",
            "password.encoder.key.length",
            "password.encoder.keyfactory.algorithm",
            "password.encoder.old.secret",
            "password.encoder.secret",
        ),
    ),
    Refused("revoked certificates are not looked up", ("zookeeper.ssl.crl.enable", "zookeeper.ssl.ocsp.enable")),
    Refused("metadata is not migrated between ZooKeeper and KRaft", ("zookeeper.metadata.migration.enable",)),
    Refused(
        _OTHER_CONTROLLER,
        ("controller.quorum.bootstrap.servers", "controller.quorum.voters"),
        accepted_if="it names this node alone, or process.roles=broker or controller",
    ),
    Refused(
        "metadata lies in the first of log.dirs, or where odradek.metadata.store says",
        ("metadata.log.dir",),
        accepted_if="it is the first of log.dirs, or process.roles=broker or controller",
    ),
    Refused("this version has no tiered storage", ("remote.log.storage.system.enable",)),
)
"""`listeners`, `listener.security.protocol.map` and `process.roles` are implemented;
`odradek.broker.configuration.refusals` names the values of them that are refused."""
