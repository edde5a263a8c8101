import java.time.Duration;
import java.util.*;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.*;
import java.util.function.BooleanSupplier;
import org.apache.kafka.clients.admin.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.*;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.*;
import org.apache.kafka.common.serialization.*;

/** Apache's Java client 4.3: java ModernClients.java BOOTSTRAP CASE. Ends with status 1 at the first surprise. */
public class ModernClients {
    static String bootstrap;
    static Admin admin;

    public static void main(String[] args) throws Exception {
        try {
            run(args);
        } catch (Throwable failed) {
            failed.printStackTrace();
            System.exit(1); // consumers may be left in their threads
        }
        System.out.println("ok " + args[1]);
        System.exit(0);
    }

    static void run(String[] args) throws Exception {
        bootstrap = args[0];
        admin = Admin.create(Map.of("bootstrap.servers", bootstrap, "default.api.timeout.ms", 30000));
        switch (args[1]) {
            case "groups" -> groups();
            case "migration" -> migration();
            case "transactions" -> transactions();
            case "admin" -> administration();
            default -> throw new IllegalArgumentException(args[1]);
        }
        admin.close();
    }

    static void require(boolean holds, Object what) {
        if (!holds) {
            throw new AssertionError(String.valueOf(what));
        }
    }

    static void until(String what, BooleanSupplier condition) throws InterruptedException {
        long end = System.nanoTime() + 40_000_000_000L;
        while (!condition.getAsBoolean()) {
            require(System.nanoTime() < end, "waited in vain: " + what);
            Thread.sleep(50);
        }
    }

    static String unique(String prefix) {
        return prefix + "-" + UUID.randomUUID().toString().substring(0, 12);
    }

    static String topic(int partitions) throws Exception {
        String name = unique("java");
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1))).all().get();
        return name;
    }

    static KafkaProducer<String, String> producer(String transactionalId) {
        Map<String, Object> config = new HashMap<>(Map.of("bootstrap.servers", bootstrap));
        if (transactionalId != null) {
            config.put("transactional.id", transactionalId);
        }
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    static void produce(String topic, int partitions, int count) throws Exception {
        try (var producer = producer(null)) {
            for (int i = 0; i < count; i++) {
                producer.send(new ProducerRecord<>(topic, i % partitions, "k", "v" + i));
            }
        }
    }

    /** A consumer in a thread of its own, which counts what it reads. */
    static class Member implements Runnable {
        final AtomicInteger seen = new AtomicInteger();
        final AtomicBoolean stop = new AtomicBoolean();
        final AtomicReference<Set<TopicPartition>> assigned = new AtomicReference<>(Set.of());
        final AtomicReference<Throwable> failure = new AtomicReference<>();
        final Thread thread = new Thread(this);
        final KafkaConsumer<String, String> consumer;

        Member(String group, String protocol, Map<String, Object> more, Object subscription) {
            Map<String, Object> config = new HashMap<>(Map.of(
                "bootstrap.servers", bootstrap, "group.id", group, "group.protocol", protocol,
                "auto.offset.reset", "earliest", "auto.commit.interval.ms", 100));
            if (protocol.equals("classic")) {
                config.put("heartbeat.interval.ms", 300);
            }
            config.putAll(more);
            consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
            if (subscription instanceof SubscriptionPattern pattern) {
                consumer.subscribe(pattern);
            } else {
                consumer.subscribe(List.of((String) subscription));
            }
            thread.start();
        }

        public void run() {
            try (consumer) {
                while (!stop.get()) {
                    seen.addAndGet(consumer.poll(Duration.ofMillis(100)).count());
                    assigned.set(consumer.assignment());
                }
            } catch (Throwable caught) {
                failure.set(caught);
            }
        }

        int share() {
            require(failure.get() == null, failure.get());
            return assigned.get().size();
        }

        void close() throws Exception {
            stop.set(true);
            thread.join();
            require(failure.get() == null, failure.get());
        }
    }

    static void groups() throws Exception {
        for (String assignor : List.of("uniform", "range")) {
            String topic = topic(4), group = unique("group");
            Map<String, Object> more = Map.of("group.remote.assignor", assignor);
            var a = new Member(group, "consumer", more, topic);
            produce(topic, 4, 40);
            until(assignor + ": the first member reads all", () -> a.share() == 4 && a.seen.get() == 40);
            var b = new Member(group, "consumer", more, topic);
            until(assignor + ": both have a part", () -> a.share() == 2 && b.share() == 2);
            produce(topic, 4, 40);
            until(assignor + ": they read all", () -> a.seen.get() + b.seen.get() == 80);
            var described = admin.describeConsumerGroups(List.of(group)).all().get().get(group);
            require(described.type() == GroupType.CONSUMER && described.members().size() == 2, described);
            require(described.partitionAssignor().equals(assignor), described);
            a.close();
            until(assignor + ": the other one has all", () -> b.share() == 4);
            b.close();
            long sum = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().values().stream()
                .mapToLong(OffsetAndMetadata::offset).sum();
            require(sum == 80, "committed " + sum);
        }
        String prefix = unique("pattern"), group = unique("group");
        admin.createTopics(List.of(new NewTopic(prefix + "-a", 1, (short) 1))).all().get();
        var member = new Member(group, "consumer", Map.of(), new SubscriptionPattern(prefix + "-[ab]+"));
        until("a topic of the pattern", () -> member.share() == 1);
        admin.createTopics(List.of(new NewTopic(prefix + "-b", 2, (short) 1), new NewTopic(prefix + "-c", 1, (short) 1)))
            .all().get();
        until("a new topic of the pattern", () -> member.share() == 3);
        member.close();
        String topic = topic(2), other = unique("group");
        var fixed = new Member(other, "consumer", Map.of("group.instance.id", "one"), topic);
        until("a static member", () -> fixed.share() == 2);
        String first = admin.describeConsumerGroups(List.of(other)).all().get().get(other).members().iterator().next().consumerId();
        fixed.close();
        var again = new Member(other, "consumer", Map.of("group.instance.id", "one"), topic);
        until("the static member is back", () -> again.share() == 2);
        var members = admin.describeConsumerGroups(List.of(other)).all().get().get(other).members();
        require(members.size() == 1 && members.iterator().next().groupInstanceId().get().equals("one"), members + first);
        again.close();
        // Java's client looks in the answer for the identity that it sent: no member id, and the instance id.
        admin.removeMembersFromConsumerGroup(other,
            new RemoveMembersFromConsumerGroupOptions(Set.of(new MemberToRemove("one")))).all().get();
        require(admin.describeConsumerGroups(List.of(other)).all().get().get(other).members().isEmpty(), "still there");
        var bad = new KafkaConsumer<>(Map.of("bootstrap.servers", bootstrap, "group.id", unique("group"), "group.protocol", "consumer"),
            new StringDeserializer(), new StringDeserializer());
        bad.subscribe(new SubscriptionPattern("a(?=b)")); // RE2 has no look-ahead
        boolean refused = false;
        try (bad) {
            for (int i = 0; i < 100 && !refused; i++) {
                bad.poll(Duration.ofMillis(100));
            }
        } catch (org.apache.kafka.common.errors.InvalidRegularExpression expected) {
            refused = true;
        }
        require(refused, "a pattern that RE2 does not know was taken");
    }

    static GroupType type(String group) {
        try {
            return admin.describeConsumerGroups(List.of(group)).all().get().get(group).type();
        } catch (InterruptedException | ExecutionException failed) {
            throw new AssertionError(failed);
        }
    }

    static void migration() throws Exception {
        String topic = topic(4), group = unique("group");
        Map<String, Object> eager = Map.of("session.timeout.ms", 6000);
        var a = new Member(group, "classic", eager, topic);
        var b = new Member(group, "classic", eager, topic);
        until("two classic members", () -> a.share() == 2 && b.share() == 2);
        produce(topic, 4, 40);
        until("they read", () -> a.seen.get() + b.seen.get() == 40);
        require(type(group) == GroupType.CLASSIC, type(group));
        a.close();
        var c = new Member(group, "consumer", Map.of(), topic);
        until("one member of each kind", () -> b.share() == 2 && c.share() == 2);
        require(type(group) == GroupType.CONSUMER, type(group));
        produce(topic, 4, 40);
        until("they read together", () -> a.seen.get() + b.seen.get() + c.seen.get() == 80);
        b.close();
        var d = new Member(group, "consumer", Map.of(), topic);
        until("upgraded", () -> c.share() == 2 && d.share() == 2);
        d.close();
        var e = new Member(group, "classic", eager, topic);
        until("a classic member comes back", () -> c.share() == 2 && e.share() == 2);
        c.close();
        until("downgraded", () -> e.share() == 4);
        until("the group is classic", () -> type(group) == GroupType.CLASSIC);
        produce(topic, 4, 40);
        until("nothing was lost or read twice",
            () -> a.seen.get() + b.seen.get() + c.seen.get() + d.seen.get() + e.seen.get() == 120);
        e.close();
    }

    static void transactions() throws Exception {
        String in = topic(2), out = topic(2), group = unique("group"), id = unique("tx");
        produce(in, 2, 60);
        for (String protocol : List.of("consumer", "classic")) {
            String name = group + protocol;
            Map<String, Object> config = new HashMap<>(Map.of(
                "bootstrap.servers", bootstrap, "group.id", name, "group.protocol", protocol,
                "auto.offset.reset", "earliest", "enable.auto.commit", false, "isolation.level", "read_committed",
                "max.poll.records", 20));
            var consumer = new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
            int copied = 0;
            boolean abort = true;
            try (consumer; var producer = producer(id)) {
                producer.initTransactions();
                consumer.subscribe(List.of(in));
                while (copied < 60) {
                    var records = consumer.poll(Duration.ofMillis(200));
                    if (records.isEmpty()) {
                        continue;
                    }
                    producer.beginTransaction();
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    for (var record : records) {
                        producer.send(new ProducerRecord<>(out, record.partition(), protocol, record.value()));
                        offsets.put(new TopicPartition(in, record.partition()), new OffsetAndMetadata(record.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    if (abort) {
                        producer.flush();
                        producer.abortTransaction();
                        for (var partition : records.partitions()) {
                            consumer.seek(partition, records.records(partition).get(0).offset());
                        }
                        abort = false;
                    } else {
                        producer.commitTransaction();
                        copied += records.count();
                    }
                }
            }
            long sum = admin.listConsumerGroupOffsets(name).partitionsToOffsetAndMetadata().get().values().stream()
                .mapToLong(OffsetAndMetadata::offset).sum();
            require(sum == 60, "committed " + sum);
        }
        var reader = new Member(unique("group"), "consumer", Map.of("isolation.level", "read_committed"), out);
        until("all that is committed", () -> reader.seen.get() >= 120);
        Thread.sleep(300);
        require(reader.seen.get() == 120, reader.seen);
        reader.close();
        require(admin.describeTransactions(List.of(id)).all().get().get(id).state() == TransactionState.COMPLETE_COMMIT, id);
        require(admin.listTransactions().all().get().stream().anyMatch(t -> t.transactionalId().equals(id)), id);
        try (var first = producer(id); var second = producer(id)) {
            first.initTransactions();
            first.beginTransaction();
            first.send(new ProducerRecord<>(out, "k", "fenced")).get();
            second.initTransactions();
            try {
                first.commitTransaction();
                require(false, "a fenced producer committed");
            } catch (org.apache.kafka.common.errors.ProducerFencedException
                | org.apache.kafka.common.errors.InvalidProducerEpochException expected) {
                require(true, expected);
            }
        }
        admin.fenceProducers(List.of(id)).all().get();
    }

    static void administration() throws Exception {
        String topic = topic(2), group = unique("group");
        produce(topic, 2, 20);
        var described = admin.describeTopics(List.of(topic), new DescribeTopicsOptions().includeAuthorizedOperations(true))
            .allTopicNames().get().get(topic);
        require(described.partitions().size() == 2 && described.authorizedOperations().contains(AclOperation.ALTER), described);
        require(admin.describeTopics(TopicCollection.ofTopicIds(List.of(described.topicId()))).allTopicIds().get().size() == 1, topic);
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all().get();
        var resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(
            new AlterConfigOp(new ConfigEntry("retention.ms", "123456"), AlterConfigOp.OpType.SET),
            new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND)))).all().get();
        var config = admin.describeConfigs(List.of(resource), new DescribeConfigsOptions().includeSynonyms(true).includeDocumentation(true))
            .all().get().get(resource);
        require(config.get("retention.ms").value().equals("123456"), config.get("retention.ms"));
        require(config.get("cleanup.policy").value().equals("delete,compact"), config.get("cleanup.policy"));
        require(config.get("retention.ms").documentation() != null && !config.get("retention.ms").synonyms().isEmpty(), config);
        var first = new TopicPartition(topic, 0);
        for (var spec : List.of(OffsetSpec.earliest(), OffsetSpec.latest(), OffsetSpec.maxTimestamp(), OffsetSpec.forTimestamp(1L),
            OffsetSpec.earliestLocal(), OffsetSpec.latestTiered())) {
            long offset = admin.listOffsets(Map.of(first, spec)).partitionResult(first).get().offset();
            require(offset >= -1 && offset <= 10, spec + " " + offset);
        }
        require(admin.deleteRecords(Map.of(first, RecordsToDelete.beforeOffset(4))).all().get() == null, first);
        require(admin.listOffsets(Map.of(first, OffsetSpec.earliest())).partitionResult(first).get().offset() == 4, first);
        admin.alterConsumerGroupOffsets(group, Map.of(first, new OffsetAndMetadata(7, Optional.of(0), "seven"))).all().get();
        var committed = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().get(first);
        require(committed.offset() == 7 && committed.metadata().equals("seven"), committed);
        require(admin.listGroups().all().get().stream().anyMatch(g -> g.groupId().equals(group)), group);
        require(admin.listGroups(new ListGroupsOptions().inGroupStates(Set.of(GroupState.EMPTY))).all().get().stream()
            .anyMatch(g -> g.groupId().equals(group)), group);
        admin.deleteConsumerGroupOffsets(group, Set.of(first)).all().get();
        int node = admin.describeCluster().nodes().get().iterator().next().id();
        require(admin.describeLogDirs(List.of(node)).allDescriptions().get().get(node).size() == 1, node);
        require(admin.describeReplicaLogDirs(List.of(new TopicPartitionReplica(topic, 0, node))).all().get().size() == 1, node);
        require(admin.describeProducers(List.of(first)).all().get().get(first).activeProducers().size() <= 2, first);
        require(admin.describeFeatures().featureMetadata().get().finalizedFeatures().containsKey("transaction.version"), "features");
        var user = new ClientQuotaEntity(Map.of(ClientQuotaEntity.USER, unique("user")));
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(user, List.of(new ClientQuotaAlteration.Op("request_percentage", 50.0))))).all().get();
        require(admin.describeClientQuotas(ClientQuotaFilter.contains(List.of(ClientQuotaFilterComponent.ofEntityType(ClientQuotaEntity.USER))))
            .entities().get().get(user).get("request_percentage") == 50.0, user);
        String name = unique("scram");
        admin.alterUserScramCredentials(List.of(new UserScramCredentialUpsertion(name, new ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192), "pw")))
            .all().get();
        require(admin.describeUserScramCredentials(List.of(name)).all().get().get(name).credentialInfos().size() == 1, name);
        admin.alterUserScramCredentials(List.of(new UserScramCredentialDeletion(name, ScramMechanism.SCRAM_SHA_512))).all().get();
        require(admin.listPartitionReassignments().reassignments().get().isEmpty(), "reassignments");
        var client = new ConfigResource(ConfigResource.Type.CLIENT_METRICS, unique("metrics"));
        admin.incrementalAlterConfigs(Map.of(client, List.of(new AlterConfigOp(new ConfigEntry("interval.ms", "5000"), AlterConfigOp.OpType.SET)))).all().get();
        require(admin.listConfigResources(Set.of(ConfigResource.Type.CLIENT_METRICS), new ListConfigResourcesOptions()).all().get().contains(client), client);
        var groupResource = new ConfigResource(ConfigResource.Type.GROUP, group);
        admin.incrementalAlterConfigs(Map.of(groupResource, List.of(
            new AlterConfigOp(new ConfigEntry("consumer.session.timeout.ms", "50000"), AlterConfigOp.OpType.SET)))).all().get();
        require(admin.describeConfigs(List.of(groupResource)).all().get().get(groupResource).get("consumer.session.timeout.ms").value().equals("50000"), group);
        admin.deleteConsumerGroups(List.of(group)).all().get();
        admin.deleteTopics(List.of(topic)).all().get();
    }
}
