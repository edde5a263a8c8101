"""Broker configurations that Apache Kafka 4.3 does not have: our own, and older ones that stand in people's files.

The older ones are accepted with the limits of their time; those that we act on (`host.name`, ZooKeeper, the control
plane) are effective as any other.
"""

from odradek.metadata.configs.definitions import (
    ConfigDefinition,
    ConfigType,
    Importance,
    Scope,
    at_least,
    between,
    one_of,
)

_c = ConfigDefinition
BOOLEAN = ConfigType.BOOLEAN
INT = ConfigType.INT
LIST = ConfigType.LIST
LONG = ConfigType.LONG
PASSWORD = ConfigType.PASSWORD
SHORT = ConfigType.SHORT
STRING = ConfigType.STRING
HIGH = Importance.HIGH
MEDIUM = Importance.MEDIUM
LOW = Importance.LOW
READ_ONLY = Scope.READ_ONLY
CLUSTER_WIDE = Scope.CLUSTER_WIDE

ODRADEK_CONFIGS = (
    _c("odradek.max.in.flight.requests", INT, "1000", at_least(1)),
    # A request other than Produce costs many times its bytes while it is served.
    _c("odradek.max.control.request.bytes", INT, str(4 << 20), at_least(1024)),
    _c("odradek.max.request.topics", INT, "100000", at_least(1)),
    _c("odradek.max.request.partitions", INT, "200000", at_least(1)),
    # With odradek.batch.validation=records; otherwise headers are not decoded, and message.max.bytes bounds them.
    # Of a producer's batch whose records the broker has to read: a few KB may expand to any size.
    _c("odradek.max.decompressed.bytes", INT, str(64 << 20), at_least(1024)),
    _c("odradek.max.record.headers", INT, "10000", at_least(0)),
    # A peer that is not admitted has so long to complete its TLS handshake, and as long for SASL or its first request.
    _c("odradek.unauthenticated.timeout.ms", INT, "10000", at_least(1)),
    # While a consumer group (KIP-848) is being rebalanced its members report this often; 0: as always.
    _c("odradek.group.unsettled.heartbeat.interval.ms", INT, "500", at_least(0)),
    # A group that reads a topic has offset 0 in the partitions that are added to it.
    _c("odradek.group.new.partitions.from.start", BOOLEAN, "true"),
    # Files 0640 and directories 0750 instead of 0600 and 0700.
    _c("odradek.group.access", BOOLEAN, "false"),
    # Failed logins of one address before its next ones are rejected unseen; as many are forgotten in one window.
    _c("odradek.login.max.failures", INT, "100", at_least(0)),
    _c("odradek.login.failure.window.ms", INT, "60000", at_least(1)),
    # Empty: file, https, and http of this machine.
    _c("odradek.oauthbearer.allowed.urls", LIST, ""),
    _c("odradek.oauthbearer.required.scopes", LIST, ""),
    # Roles that a token or a certificate gives its client; empty: none.
    _c("odradek.oauthbearer.role.claim.name", STRING, ""),
    _c("odradek.ssl.role.attribute", STRING, "", one_of("", "OU", "O", "CN", "DC", "UID")),
    # Directories of partitions that were copied in from another cluster are served as the topic of their name.
    _c("odradek.adopt.partitions", BOOLEAN, "false"),
    # enforce: denied requests fail; audit: they are served, and the log says what would be denied.
    _c("odradek.authorizer.mode", STRING, "enforce", one_of("enforce", "audit")),
    # Logins, denials and administrative changes as records of __odradek_audit.
    _c("odradek.audit.topic.enable", BOOLEAN, "false"),
    _c("odradek.audit.topic.num.partitions", INT, "1", at_least(1)),
    _c("odradek.audit.topic.replication.factor", SHORT, "3", at_least(1)),
    _c("odradek.audit.topic.min.isr", INT, "2", at_least(1)),
    _c("odradek.audit.topic.segment.bytes", INT, "104857600", at_least(1 << 20)),
    _c("odradek.audit.topic.retention.ms", LONG, str(90 * 24 * 60 * 60 * 1000), at_least(-1)),
    # Events beyond it are lost and counted: the requests that they are about never wait.
    _c("odradek.audit.queue.bytes", INT, str(8 << 20), at_least(0), MEDIUM, CLUSTER_WIDE),
    _c("odradek.audit.exclude.events", LIST, ""),
    _c("odradek.audit.exclude.principals", STRING, ""),
    _c("odradek.audit.exclude.topics", LIST, ""),
    # header: CRC, counts and sizes of batches; records: every record in them, too.
    _c("odradek.batch.validation", STRING, "header", one_of("header", "records")),
    # Logs without appends for this time are synced and give back memory and files.
    _c("odradek.idle.check.interval.ms", LONG, "30000", at_least(1)),
    # Larger appends are written by a thread, and all while the disk does not keep up: when a write on the event loop
    # took longer than the stall, or the kernel lets writers wait, and for the probation after the last such sign.
    _c("odradek.write.inline.max.bytes", INT, str(1 << 20), at_least(0)),
    _c("odradek.write.stall.ms", INT, "10", at_least(1)),
    _c("odradek.write.probation.ms", INT, "1000", at_least(0)),
    # The SQLite file that brokers of one machine share; empty: a file of its own in the first log directory.
    _c("odradek.metadata.store", STRING, ""),
    # HOST:PORT of metrics and health over HTTP; empty: none. Without a host, that of loopback.
    _c("odradek.http.listener", STRING, ""),
    # Partitions with series of their own: none, those led by the broker that is scraped, or all of its replicas.
    _c("odradek.metrics.partitions", STRING, "leaders", one_of("none", "leaders", "all"), MEDIUM, CLUSTER_WIDE),
    # Topics with the most bytes, and groups by name, that have series of their own.
    _c("odradek.metrics.max.topics", INT, "1000", at_least(0), MEDIUM, CLUSTER_WIDE),
    _c("odradek.metrics.max.groups", INT, "1000", at_least(0), MEDIUM, CLUSTER_WIDE),
    # A log directory whose file system has a smaller share free is a problem of the broker's health; 0: never.
    _c("odradek.health.free.space.min.percent", INT, "5", between(0, 100), MEDIUM, CLUSTER_WIDE),
    # The topic that clients' metrics are written to (KIP-714); empty: none. Pushes beyond the queue are lost.
    _c("odradek.telemetry.topic", STRING, ""),
    _c("odradek.telemetry.queue.bytes", INT, str(8 << 20), at_least(0), MEDIUM, CLUSTER_WIDE),
    # Requests that take this long are logged; 0: all, -1: none.
    _c("odradek.slow.request.ms", INT, "-1", at_least(-1), MEDIUM, CLUSTER_WIDE),
    # How long a request for many partitions may hold the event loop before others are served.
    _c("odradek.loop.slice.ms", INT, "4", at_least(0), MEDIUM, CLUSTER_WIDE),
    # Requests and slices of them that hold the event loop for that long are counted, the worst are logged; -1: none.
    _c("odradek.slow.loop.ms", INT, "100", at_least(-1), MEDIUM, CLUSTER_WIDE),
    # Credentials without a login file.
    _c("odradek.zookeeper.digest", PASSWORD, None),
    # Machines boot in any order; Kafka's zookeeper.connection.timeout.ms, 18 s in most files, also bounds requests.
    _c("odradek.zookeeper.wait.ms", INT, "300000", at_least(0)),
    # A broker leads for that long after the controller's last confirmation; less the margin for clocks that drift.
    _c("odradek.leadership.lease.ms", INT, "2000", at_least(100)),
    _c("odradek.self.fence.margin.ms", INT, "200", at_least(1)),
    # Between brokers: a path that drops packets silently costs no more than this before another connection is tried.
    _c("odradek.peer.setup.timeout.ms", INT, "2000", at_least(1)),
    _c("odradek.peer.silence.timeout.ms", INT, "3000", at_least(1)),
)

_LEGACY = (
    # ZooKeeper, to 3.9
    _c("zookeeper.connect", STRING, None, None, HIGH),
    _c("zookeeper.session.timeout.ms", INT, "18000", at_least(1), HIGH),
    _c("zookeeper.connection.timeout.ms", INT, None, at_least(1), HIGH),
    _c("zookeeper.max.in.flight.requests", INT, "10", at_least(1), HIGH),
    _c("zookeeper.set.acl", BOOLEAN, "false", None, HIGH),
    _c("zookeeper.sync.time.ms", INT, "2000", None, LOW),
    _c("zookeeper.metadata.migration.enable", BOOLEAN, "false", None, HIGH),
    _c("zookeeper.metadata.migration.min.batch.size", INT, "200", at_least(1)),
    _c("zookeeper.clientCnxnSocket", STRING, None),
    _c("zookeeper.ssl.client.enable", BOOLEAN, "false"),
    _c("zookeeper.ssl.keystore.location", STRING, None),
    _c("zookeeper.ssl.keystore.password", PASSWORD, None),
    _c("zookeeper.ssl.keystore.type", STRING, None),
    _c("zookeeper.ssl.truststore.location", STRING, None),
    _c("zookeeper.ssl.truststore.password", PASSWORD, None),
    _c("zookeeper.ssl.truststore.type", STRING, None),
    _c("zookeeper.ssl.protocol", STRING, "TLSv1.2", None, LOW),
    _c("zookeeper.ssl.enabled.protocols", LIST, None, None, LOW),
    _c("zookeeper.ssl.cipher.suites", LIST, None, None, LOW),
    _c("zookeeper.ssl.endpoint.identification.algorithm", STRING, "HTTPS", None, LOW),
    # In Java these are properties of the system, which Kafka's start script has in KAFKA_OPTS.
    _c("java.security.auth.login.config", STRING, None),
    _c("zookeeper.sasl.client", BOOLEAN, "true"),
    _c("zookeeper.sasl.clientconfig", STRING, "Client"),
    _c("zookeeper.sasl.client.username", STRING, "zookeeper"),
    _c("zookeeper.server.principal", STRING, None),
    _c("zookeeper.ssl.crl.enable", BOOLEAN, "false", None, LOW),
    _c("zookeeper.ssl.ocsp.enable", BOOLEAN, "false", None, LOW),
    # addresses, to 2.8
    _c("host.name", STRING, "", None, HIGH),
    _c("port", INT, "9092", None, HIGH),
    _c("advertised.host.name", STRING, None, None, HIGH),
    _c("advertised.port", INT, None, None, HIGH),
    # identity and control, to 3.9
    _c("broker.id.generation.enable", BOOLEAN, "true"),
    _c("reserved.broker.max.id", INT, "1000", at_least(0)),
    _c("control.plane.listener.name", STRING, None, None, HIGH),
    _c("controlled.shutdown.max.retries", INT, "3"),
    _c("controlled.shutdown.retry.backoff.ms", LONG, "5000"),
    _c("controller.message.queue.size", INT, str(2**31 - 1)),
    _c("inter.broker.protocol.version", STRING, "3.9-IV0"),
    _c("leader.imbalance.per.broker.percentage", INT, "10", None, HIGH),
    _c("replica.lag.max.messages", LONG, "4000", None, HIGH),
    _c("eligible.leader.replicas.enable", BOOLEAN, "false", None, HIGH),
    # records and logs, to 3.9
    _c("log.message.format.version", STRING, "3.0-IV1"),
    _c("log.message.downconversion.enable", BOOLEAN, "true", None, LOW, CLUSTER_WIDE),
    _c("log.message.timestamp.difference.max.ms", LONG, str(2**63 - 1), at_least(0), MEDIUM, CLUSTER_WIDE),
    _c("offsets.commit.required.acks", INT, "-1", None, HIGH),
    # groups, to 4.0
    _c("group.coordinator.new.enable", BOOLEAN, "true"),
    _c("group.share.enable", BOOLEAN, "false"),
    _c("group.share.max.groups", INT, "10", at_least(1)),
    # quotas, to 2.8
    _c("quota.producer.default", LONG, str(2**63 - 1), at_least(1), HIGH),
    _c("quota.consumer.default", LONG, str(2**63 - 1), at_least(1), HIGH),
    # security, to 3.9
    _c("delegation.token.master.key", PASSWORD, None),
    _c("password.encoder.secret", PASSWORD, None),
    _c("password.encoder.old.secret", PASSWORD, None),
    _c("password.encoder.keyfactory.algorithm", STRING, None, None, LOW),
    _c("password.encoder.cipher.algorithm", STRING, "AES/CBC/PKCS5Padding", None, LOW),
    _c("password.encoder.key.length", INT, "128", at_least(8), LOW),
    _c("password.encoder.iterations", INT, "4096", at_least(1024), LOW),
    # read by the authorizer that Kafka comes with, and by ours
    _c("super.users", STRING, None),
    _c("allow.everyone.if.no.acl.found", BOOLEAN, "false"),
    _c("auto.include.jmx.reporter", BOOLEAN, "true", None, LOW),
)

# They answer no DescribeConfigs: a 4.3 broker does not know them.
LEGACY_CONFIGS = tuple(definition._replace(listed=False) for definition in _LEGACY)
