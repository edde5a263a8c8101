package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
)

func saramaConfig(version string) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	if version != "" {
		parsed, err := sarama.ParseKafkaVersion(version)
		check(err, "version")
		config.Version = parsed
	}
	config.Producer.Return.Successes = true
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Interval = 100 * time.Millisecond
	config.Consumer.Group.Session.Timeout = 6 * time.Second
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	sarama.Logger = log.New(io.Discard, "", 0)
	if os.Getenv("DEBUG") != "" {
		sarama.Logger = log.New(os.Stderr, "", log.LstdFlags)
	}
	return config
}

func saramaTopic(admin sarama.ClusterAdmin, partitions int32) string {
	topic := unique("sarama")
	check(admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: partitions, ReplicationFactor: 1}, false), "create")
	return topic
}

func saramaAdminClient(bootstrap, version string) sarama.ClusterAdmin {
	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, saramaConfig(version))
	check(err, "admin")
	return admin
}

func saramaBasic(bootstrap, version string) {
	admin := saramaAdminClient(bootstrap, version)
	defer admin.Close()
	topic := saramaTopic(admin, 2)
	codecs := []sarama.CompressionCodec{
		sarama.CompressionNone, sarama.CompressionGZIP, sarama.CompressionSnappy, sarama.CompressionLZ4, sarama.CompressionZSTD,
	}
	total := 0
	for _, codec := range codecs {
		for _, idempotent := range []bool{false, true} {
			config := saramaConfig(version)
			config.Producer.Compression = codec
			if codec == sarama.CompressionZSTD && !config.Version.IsAtLeast(sarama.V2_1_0_0) {
				continue
			}
			if idempotent {
				config.Producer.Idempotent = true
				config.Producer.RequiredAcks = sarama.WaitForAll
				config.Net.MaxOpenRequests = 1
			}
			producer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
			check(err, "producer")
			var messages []*sarama.ProducerMessage
			for i := 0; i < 50; i++ {
				messages = append(messages, &sarama.ProducerMessage{
					Topic: topic, Key: sarama.StringEncoder(fmt.Sprint(i)), Value: sarama.StringEncoder(fmt.Sprintf("%v %v %d", codec, idempotent, i)),
					Headers: []sarama.RecordHeader{{Key: []byte("h"), Value: []byte("v")}},
				})
			}
			check(producer.SendMessages(messages), "send with %v", codec)
			total += len(messages)
			check(producer.Close(), "close")
		}
	}
	consumer, err := sarama.NewConsumer([]string{bootstrap}, saramaConfig(version))
	check(err, "consumer")
	seen := map[string]bool{}
	for partition := int32(0); partition < 2; partition++ {
		part, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
		check(err, "consume")
		for more := true; more; {
			select {
			case message := <-part.Messages():
				require(len(message.Headers) == 1, "headers %v", message.Headers)
				seen[string(message.Value)] = true
				more = message.Offset+1 < part.HighWaterMarkOffset()
			case err := <-part.Errors():
				check(err, "consume")
			case <-time.After(20 * time.Second):
				fail("nothing comes from partition %d", partition)
			}
		}
		check(part.Close(), "close")
	}
	require(len(seen) == total, "%d different records of %d", len(seen), total)
	check(consumer.Close(), "close")
}

type saramaHandler struct {
	seen   atomic.Int64
	claims atomic.Int64
}

func (h *saramaHandler) Setup(session sarama.ConsumerGroupSession) error {
	count := 0
	for _, partitions := range session.Claims() {
		count += len(partitions)
	}
	h.claims.Store(int64(count))
	return nil
}

func (h *saramaHandler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (h *saramaHandler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		h.seen.Add(1)
		session.MarkMessage(message, "read")
	}
	return nil
}

func saramaMember(ctx context.Context, bootstrap, group, topic string, config *sarama.Config) (*saramaHandler, sarama.ConsumerGroup) {
	member, err := sarama.NewConsumerGroup([]string{bootstrap}, group, config)
	check(err, "member")
	handler := &saramaHandler{}
	go func() {
		for err := range member.Errors() {
			check(err, "group")
		}
	}()
	go func() {
		for ctx.Err() == nil {
			err := member.Consume(ctx, []string{topic}, handler)
			if errors.Is(err, sarama.ErrClosedConsumerGroup) {
				return
			}
			check(err, "consume in a group")
		}
	}()
	return handler, member
}

func saramaGroups(bootstrap, version string) {
	admin := saramaAdminClient(bootstrap, version)
	defer admin.Close()
	strategies := []sarama.BalanceStrategy{
		sarama.NewBalanceStrategyRange(), sarama.NewBalanceStrategyRoundRobin(), sarama.NewBalanceStrategySticky(),
	}
	for _, strategy := range strategies {
		ctx, cancel := limit()
		topic, group := saramaTopic(admin, 4), unique("group")
		config := func(instance string) *sarama.Config {
			config := saramaConfig(version)
			config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategy}
			if config.Version.IsAtLeast(sarama.V2_3_0_0) && strategy.Name() == "range" {
				config.Consumer.Group.InstanceId = instance
			}
			return config
		}
		produce := func(count int) {
			producer, err := sarama.NewSyncProducer([]string{bootstrap}, saramaConfig(version))
			check(err, "producer")
			for i := 0; i < count; i++ {
				_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Key: sarama.StringEncoder(fmt.Sprint(i)), Value: sarama.StringEncoder("x")})
				check(err, "send")
			}
			check(producer.Close(), "close")
		}
		first, firstMember := saramaMember(ctx, bootstrap, group, topic, config("a"))
		produce(20)
		wait(ctx, strategy.Name()+": the first member reads all", func() bool { return first.seen.Load() == 20 })
		second, secondMember := saramaMember(ctx, bootstrap, group, topic, config("b"))
		wait(ctx, strategy.Name()+": both have two partitions", func() bool {
			return first.claims.Load() == 2 && second.claims.Load() == 2
		})
		produce(20)
		wait(ctx, strategy.Name()+": they read all", func() bool { return first.seen.Load()+second.seen.Load() == 40 })
		described, err := admin.DescribeConsumerGroups([]string{group})
		check(err, "describe")
		require(described[0].State == "Stable" && len(described[0].Members) == 2, "described %+v", described[0])
		check(firstMember.Close(), "close")
		check(secondMember.Close(), "close")
		offsets, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0, 1, 2, 3}})
		check(err, "offsets")
		sum := int64(0)
		for partition := int32(0); partition < 4; partition++ {
			if block := offsets.GetBlock(topic, partition); block.Offset > 0 {
				sum += block.Offset
			}
		}
		require(sum == 40, "%s: committed %d", strategy.Name(), sum)
		cancel()
	}
}

func saramaAdmin(bootstrap, version string) {
	admin := saramaAdminClient(bootstrap, version)
	defer admin.Close()
	topic := saramaTopic(admin, 2)
	topics, err := admin.ListTopics()
	check(err, "list topics")
	require(topics[topic].NumPartitions == 2, "topics %+v", topics[topic])
	check(admin.CreatePartitions(topic, 3, nil, false), "create partitions")
	value := "1234567"
	check(admin.AlterConfig(sarama.TopicResource, topic, map[string]*string{"retention.ms": &value}, false), "alter config")
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: topic, ConfigNames: []string{"retention.ms"}})
	check(err, "describe config")
	require(len(entries) == 1 && entries[0].Value == value, "entries %+v", entries)
	brokers, controller, err := admin.DescribeCluster()
	check(err, "describe cluster")
	require(len(brokers) == 1 && brokers[0].ID() == controller, "brokers %v, controller %d", brokers, controller)
	config := saramaConfig(version)
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
	check(err, "producer")
	_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Partition: 0, Value: sarama.StringEncoder("x")})
	check(err, "send")
	check(producer.Close(), "close")
	check(admin.DeleteRecords(topic, map[int32]int64{0: -1}), "delete records")
	_, err = admin.DescribeLogDirs([]int32{brokers[0].ID()})
	check(err, "log dirs")
	client, err := sarama.NewClient([]string{bootstrap}, config)
	check(err, "client")
	group := unique("group")
	manager, err := sarama.NewOffsetManagerFromClient(group, client)
	check(err, "offset manager")
	managed, err := manager.ManagePartition(topic, 0)
	check(err, "manage")
	managed.MarkOffset(7, "seven")
	manager.Commit()
	check(managed.Close(), "close")
	check(manager.Close(), "close")
	offset, err := client.GetOffset(topic, 0, sarama.OffsetNewest)
	check(err, "get offset")
	require(offset >= 0, "offset %d", offset)
	check(client.Close(), "close")
	committed, err := admin.ListConsumerGroupOffsets(group, map[string][]int32{topic: {0}})
	check(err, "offsets")
	block := committed.GetBlock(topic, 0)
	require(block.Offset == 7 && block.Metadata == "seven", "committed %+v", block)
	groups, err := admin.ListConsumerGroups()
	check(err, "list groups")
	_, listed := groups[group]
	require(listed, "groups %v", groups)
	parsed := config.Version
	if parsed.IsAtLeast(sarama.V2_4_0_0) {
		check(admin.DeleteConsumerGroupOffset(group, topic, 0), "delete offset")
		_, err = admin.ListPartitionReassignments(topic, []int32{0})
		check(err, "reassignments")
		_, err = admin.ElectLeaders(sarama.PreferredElection, map[string][]int32{topic: {0}})
		check(err, "elect")
	}
	if parsed.IsAtLeast(sarama.V2_3_0_0) {
		changed := map[string]sarama.IncrementalAlterConfigsEntry{
			"retention.ms": {Operation: sarama.IncrementalAlterConfigsOperationDelete},
		}
		check(admin.IncrementalAlterConfig(sarama.TopicResource, topic, changed, false), "incremental alter config")
	}
	if parsed.IsAtLeast(sarama.V2_7_0_0) {
		saramaModernAdmin(admin)
	}
	if parsed.IsAtLeast(sarama.V1_1_0_0) {
		check(admin.DeleteConsumerGroup(group), "delete group")
	}
	check(admin.DeleteTopic(topic), "delete topic")
	saramaTransaction(bootstrap, config)
}

func saramaModernAdmin(admin sarama.ClusterAdmin) {
	user := unique("user")
	results, err := admin.UpsertUserScramCredentials([]sarama.AlterUserScramCredentialsUpsert{
		{Name: user, Mechanism: sarama.SCRAM_MECHANISM_SHA_256, Iterations: 8192, Salt: []byte("salt"), Password: []byte("secret")},
	})
	check(err, "scram")
	require(len(results) == 1 && results[0].ErrorCode == sarama.ErrNoError, "scram %+v", results)
	described, err := admin.DescribeUserScramCredentials([]string{user})
	check(err, "describe scram")
	require(len(described) == 1 && len(described[0].CredentialInfos) == 1, "scram %+v", described)
	entity := []sarama.QuotaEntityComponent{{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchExact, Name: user}}
	check(admin.AlterClientQuotas(entity, sarama.ClientQuotasOp{Key: "producer_byte_rate", Value: 1e9}, false), "quota")
	filter := []sarama.QuotaFilterComponent{{EntityType: sarama.QuotaEntityUser, MatchType: sarama.QuotaMatchExact, Match: user}}
	quotas, err := admin.DescribeClientQuotas(filter, true)
	check(err, "describe quotas")
	require(len(quotas) == 1 && quotas[0].Values["producer_byte_rate"] == 1e9, "quotas %+v", quotas)
}

func saramaTransaction(bootstrap string, config *sarama.Config) {
	admin, err := sarama.NewClusterAdmin([]string{bootstrap}, config)
	check(err, "admin")
	defer admin.Close()
	topic := saramaTopic(admin, 1)
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Net.MaxOpenRequests = 1
	config.Producer.Transaction.ID = unique("tx")
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
	check(err, "transactional producer")
	group := unique("group")
	for _, commit := range []bool{true, false, true} {
		check(producer.BeginTxn(), "begin")
		for i := 0; i < 10; i++ {
			_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(fmt.Sprint(commit))})
			check(err, "send in a transaction")
		}
		offsets := map[string][]*sarama.PartitionOffsetMetadata{topic: {{Partition: 0, Offset: 5, LeaderEpoch: -1}}}
		check(producer.AddOffsetsToTxn(offsets, group), "offsets")
		if commit {
			check(producer.CommitTxn(), "commit")
		} else {
			check(producer.AbortTxn(), "abort")
		}
	}
	check(producer.Close(), "close")
	consumer, err := sarama.NewConsumer([]string{bootstrap}, config)
	check(err, "consumer")
	part, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	check(err, "consume")
	for i := 0; i < 20; i++ {
		select {
		case message := <-part.Messages():
			require(string(message.Value) == "true", "a record of an aborted transaction at %d", message.Offset)
		case <-time.After(20 * time.Second):
			fail("%d committed records", i)
		}
	}
	check(part.Close(), "close")
	check(consumer.Close(), "close")
}
