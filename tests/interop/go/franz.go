package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

func limit() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 60*time.Second)
}

func franzClient(bootstrap, version string, opts ...kgo.Opt) *kgo.Client {
	opts = append(opts, kgo.SeedBrokers(bootstrap), kgo.MetadataMinAge(50*time.Millisecond))
	if version != "" {
		v := kversion.FromString(version)
		require(v != nil, "no version %s", version)
		opts = append(opts, kgo.MaxVersions(v))
	}
	client, err := kgo.NewClient(opts...)
	check(err, "client")
	return client
}

func franzTopic(ctx context.Context, bootstrap string, partitions int32) string {
	client := franzClient(bootstrap, "")
	defer client.Close()
	topic := unique("franz")
	created, err := kadm.NewClient(client).CreateTopic(ctx, partitions, 1, nil, topic)
	check(err, "create %s", topic)
	require(created.NumPartitions == partitions, "created with %d partitions", created.NumPartitions)
	return topic
}

// consume polls until so many records have come.
func consume(ctx context.Context, client *kgo.Client, count int) []*kgo.Record {
	var records []*kgo.Record
	for len(records) < count {
		fetches := client.PollFetches(ctx)
		check(fetches.Err0(), "poll after %d of %d records", len(records), count)
		fetches.EachError(func(topic string, partition int32, err error) { check(err, "%s-%d", topic, partition) })
		records = append(records, fetches.Records()...)
	}
	require(len(records) == count, "%d records, not %d", len(records), count)
	return records
}

func franzBasic(bootstrap, version string) {
	ctx, cancel := limit()
	defer cancel()
	topic := franzTopic(ctx, bootstrap, 3)
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
	total := 0
	for i, codec := range codecs {
		for _, idempotent := range []bool{true, false} {
			opts := []kgo.Opt{kgo.ProducerBatchCompression(codec, kgo.NoCompression())}
			if !idempotent {
				opts = append(opts, kgo.DisableIdempotentWrite(), kgo.RequiredAcks(kgo.LeaderAck()))
			}
			client := franzClient(bootstrap, version, opts...)
			var records []*kgo.Record
			for n := 0; n < 60; n++ {
				records = append(records, &kgo.Record{
					Topic: topic, Key: []byte(fmt.Sprint(n)), Value: []byte(fmt.Sprintf("%d %v %d", i, idempotent, n)),
					Headers: []kgo.RecordHeader{{Key: "n", Value: []byte{byte(n)}}, {Key: "nil"}},
				})
			}
			check(client.ProduceSync(ctx, records...).FirstErr(), "produce with codec %d", i)
			total += len(records)
			client.Close()
		}
	}
	client := franzClient(bootstrap, version, kgo.ConsumeTopics(topic), kgo.FetchMaxPartitionBytes(1000))
	defer client.Close()
	seen := map[string]bool{}
	for _, record := range consume(ctx, client, total) {
		require(len(record.Headers) == 2 && record.Headers[0].Key == "n", "headers %v", record.Headers)
		seen[string(record.Value)] = true
	}
	require(len(seen) == total, "%d different records of %d", len(seen), total)
}

func franzGroups(bootstrap, version string) {
	for name, opts := range map[string][]kgo.Opt{
		"cooperative": {kgo.Balancers(kgo.CooperativeStickyBalancer())},
		"range":       {kgo.Balancers(kgo.RangeBalancer())},
		"static":      {kgo.InstanceID("INSTANCE"), kgo.Balancers(kgo.RoundRobinBalancer())},
		"kip-848":     {kgo.ServerSideBalancer()},
	} {
		if version != "" && (name == "static" || name == "kip-848") {
			continue
		}
		franzGroup(bootstrap, version, name, opts)
	}
}

func franzGroup(bootstrap, version, name string, opts []kgo.Opt) {
	ctx, cancel := limit()
	defer cancel()
	topic, group := franzTopic(ctx, bootstrap, 4), unique("group")
	var seen, mine atomic.Int64
	member := func(id string, done context.Context) *kgo.Client {
		all := append([]kgo.Opt{
			kgo.ConsumeTopics(topic), kgo.ConsumerGroup(group), kgo.HeartbeatInterval(200 * time.Millisecond),
			kgo.AutoCommitInterval(100 * time.Millisecond),
		}, opts...)
		if name == "static" {
			all = append(all, kgo.InstanceID(id))
		}
		client := franzClient(bootstrap, version, all...)
		go func() {
			for done.Err() == nil {
				fetches := client.PollFetches(done)
				if fetches.IsClientClosed() {
					return
				}
				seen.Add(int64(fetches.NumRecords()))
				if id == "b" {
					mine.Add(int64(fetches.NumRecords()))
				}
			}
		}()
		return client
	}
	produce := func(count int) {
		client := franzClient(bootstrap, version, kgo.RecordPartitioner(kgo.RoundRobinPartitioner()))
		defer client.Close()
		for i := 0; i < count; i++ {
			client.Produce(ctx, &kgo.Record{Topic: topic, Value: []byte("x")}, nil)
		}
		check(client.Flush(ctx), "flush")
	}
	done, stop := context.WithCancel(ctx)
	a := member("a", done)
	produce(40)
	wait(ctx, name+": the first member reads all", func() bool { return seen.Load() == 40 })
	b := member("b", done)
	wait(ctx, name+": the second member reads some", func() bool {
		produce(8)
		return mine.Load() > 0
	})
	admin := kadm.NewClient(franzClient(bootstrap, ""))
	if name == "kip-848" {
		described, err := admin.DescribeConsumerGroups(ctx, group)
		check(err, "describe the consumer group")
		require(len(described[group].Members) == 2, "%s: described %+v", name, described[group])
	} else {
		described, err := admin.DescribeGroups(ctx, group)
		check(err, "describe groups")
		require(len(described[group].Members) == 2 && described[group].State != "Dead", "%s: %+v", name, described[group])
	}
	check(a.CommitUncommittedOffsets(ctx), "%s: commit", name)
	a.Close()
	before := mine.Load()
	wait(ctx, name+": the second member reads all that is left", func() bool {
		produce(4)
		return mine.Load() >= before+12
	})
	stop()
	check(b.CommitUncommittedOffsets(ctx), "%s: commit", name)
	b.Close()
	if name == "kip-848" { // kadm's lag is for classic groups
		offsets, err := admin.FetchOffsets(ctx, group)
		check(err, "offsets of the group")
		require(len(offsets[topic]) == 4, "offsets %+v", offsets)
	} else {
		lags, err := admin.Lag(ctx, group)
		check(err, "lag")
		lag := lags[group]
		check(lag.Error(), "%s: lag of the group", name)
		require(len(lag.Lag[topic]) == 4, "%s: lag %+v", name, lag)
	}
	if name == "static" { // its members stay until their session ends
		admin.Close()
		return
	}
	wait(ctx, name+": the empty group is deleted", func() bool {
		_, err := admin.DeleteGroup(ctx, group)
		return err == nil
	})
	admin.Close()
}

func wait(ctx context.Context, what string, condition func() bool) {
	for !condition() {
		require(ctx.Err() == nil, "waited in vain: %s", what)
		time.Sleep(50 * time.Millisecond)
	}
}

func franzTransaction(bootstrap, version string) {
	ctx, cancel := limit()
	defer cancel()
	in, out, group, id := franzTopic(ctx, bootstrap, 2), franzTopic(ctx, bootstrap, 2), unique("group"), unique("tx")
	producer := franzClient(bootstrap, version)
	for i := 0; i < 50; i++ {
		producer.Produce(ctx, &kgo.Record{Topic: in, Value: []byte(fmt.Sprint(i))}, nil)
	}
	check(producer.Flush(ctx), "flush")
	producer.Close()
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(bootstrap), kgo.TransactionalID(id), kgo.ConsumerGroup(group), kgo.ConsumeTopics(in),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(),
	)
	check(err, "session")
	copied, aborted := 0, false
	for copied < 50 {
		fetches := session.PollFetches(ctx)
		check(fetches.Err0(), "poll in a transaction")
		if fetches.NumRecords() == 0 {
			continue
		}
		check(session.Begin(), "begin")
		for _, record := range fetches.Records() {
			session.Produce(ctx, &kgo.Record{Topic: out, Value: record.Value}, nil)
		}
		check(session.Client().Flush(ctx), "flush in a transaction")
		committed, err := session.End(ctx, kgo.TransactionEndTry(aborted))
		check(err, "end")
		require(committed == aborted, "committed %v", committed)
		if committed {
			copied += fetches.NumRecords()
		}
		aborted = true // the first one is given up and read again
	}
	admin := kadm.NewClient(franzClient(bootstrap, ""))
	described, err := admin.DescribeTransactions(ctx, id)
	check(err, "describe transactions")
	require(described[id].State == "CompleteCommit", "state %+v", described[id])
	listed, err := admin.ListTransactions(ctx, nil, nil)
	check(err, "list transactions")
	require(listed[id].TxnID == id, "listed %v", listed)
	session.Close()
	admin.Close()
	committed := franzClient(bootstrap, version, kgo.ConsumeTopics(out), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	values := map[string]bool{}
	for _, record := range consume(ctx, committed, 50) {
		values[string(record.Value)] = true
	}
	require(len(values) == 50, "%d different values", len(values))
	committed.Close()
	all := franzClient(bootstrap, version, kgo.ConsumeTopics(out))
	var seen int
	for seen <= 50 { // and those of the transaction that was given up
		fetches := all.PollFetches(ctx)
		check(fetches.Err0(), "read uncommitted after %d", seen)
		seen += fetches.NumRecords()
	}
	all.Close()
}

func franzAdmin(bootstrap, version string) {
	ctx, cancel := limit()
	defer cancel()
	client := franzClient(bootstrap, version, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer client.Close()
	admin := kadm.NewClient(client)
	topic, group := unique("admin"), unique("group")
	retention := "123456"
	_, err := admin.CreateTopic(ctx, 2, 1, map[string]*string{"retention.ms": &retention}, topic)
	check(err, "create")
	_, err = admin.CreateTopic(ctx, 2, 1, nil, topic)
	require(errors.Is(err, kerr.TopicAlreadyExists), "created twice: %v", err)
	for i := 0; i < 10; i++ {
		check(client.ProduceSync(ctx, &kgo.Record{Topic: topic, Partition: int32(i % 2), Value: []byte("v")}).FirstErr(), "produce")
	}
	metadata, err := admin.Metadata(ctx, topic)
	check(err, "metadata")
	require(len(metadata.Topics[topic].Partitions) == 2 && len(metadata.Brokers) == 1, "metadata %+v", metadata)
	ends, err := admin.ListEndOffsets(ctx, topic)
	check(err, "end offsets")
	sum := int64(0)
	ends.Each(func(o kadm.ListedOffset) { sum += o.Offset })
	require(sum == 10, "end offsets %+v", ends)
	for name, list := range map[string]func() (kadm.ListedOffsets, error){
		"start":     func() (kadm.ListedOffsets, error) { return admin.ListStartOffsets(ctx, topic) },
		"committed": func() (kadm.ListedOffsets, error) { return admin.ListCommittedOffsets(ctx, topic) },
		"after":     func() (kadm.ListedOffsets, error) { return admin.ListOffsetsAfterMilli(ctx, 1, topic) },
	} {
		listed, err := list()
		check(err, "%s offsets", name)
		check(listed.Error(), "%s offsets", name)
	}
	check(grow(ctx, admin, topic, 3), "create partitions")
	configs, err := admin.DescribeTopicConfigs(ctx, topic)
	check(err, "describe configs")
	config, err := configs.On(topic, nil)
	check(err, "configs of the topic")
	found := ""
	for _, c := range config.Configs {
		if c.Key == "retention.ms" {
			found = c.MaybeValue()
		}
	}
	require(found == retention, "retention.ms %q", found)
	value := "delete"
	altered, err := admin.AlterTopicConfigs(ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "cleanup.policy", Value: &value}}, topic)
	check(err, "alter configs")
	require(len(altered) == 1 && altered[0].Err == nil, "altered %+v", altered)
	brokers, err := admin.DescribeBrokerConfigs(ctx)
	check(err, "broker configs")
	require(len(brokers) > 0, "no broker configs")
	var offsets kadm.Offsets
	offsets.Add(kadm.Offset{Topic: topic, Partition: 0, At: 1, LeaderEpoch: -1, Metadata: "m"})
	_, err = admin.CommitOffsets(ctx, group, offsets)
	check(err, "commit")
	fetched, err := admin.FetchOffsets(ctx, group)
	check(err, "fetch offsets")
	at, ok := fetched.Lookup(topic, 0)
	require(ok && at.At == 1 && at.Metadata == "m", "fetched %+v", fetched)
	groups, err := admin.ListGroups(ctx)
	check(err, "list groups")
	require(groups[group].Group == group, "listed %v", groups)
	var cut kadm.Offsets
	cut.Add(kadm.Offset{Topic: topic, Partition: 0, At: 1, LeaderEpoch: -1})
	deleted, err := admin.DeleteRecords(ctx, cut)
	check(err, "delete records")
	check(deleted.Error(), "delete records")
	logs, err := admin.DescribeAllLogDirs(ctx, nil)
	check(err, "log dirs")
	require(len(logs) == 1, "log dirs %+v", logs)
	check(admin.FindGroupCoordinators(ctx, group).Error(), "coordinator")
	if version == "" {
		franzModernAdmin(ctx, admin, topic, group)
	}
	_, err = admin.DeleteGroup(ctx, group)
	check(err, "delete group")
	_, err = admin.DeleteTopic(ctx, topic)
	check(err, "delete topic")
}

func grow(ctx context.Context, admin *kadm.Client, topic string, total int) error {
	grown, err := admin.UpdatePartitions(ctx, total, topic)
	if err == nil {
		err = grown.Error()
	}
	return err
}

func franzModernAdmin(ctx context.Context, admin *kadm.Client, topic, group string) {
	versions, err := admin.ApiVersions(ctx)
	check(err, "api versions")
	versions.Each(func(v kadm.BrokerApiVersions) { require(v.VersionGuess() != "", "guessed nothing") })
	producers, err := admin.DescribeProducers(ctx, topicsSet(topic))
	check(err, "describe producers")
	require(len(producers) > 0, "no producers")
	epochs, err := admin.OffetForLeaderEpoch(ctx, epochRequest(topic))
	check(err, "offset for leader epoch")
	require(len(epochs[topic]) == 1, "epochs %+v", epochs)
	_, err = admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, topicsSet(topic))
	check(err, "elect leaders")
	_, err = admin.ListPartitionReassignments(ctx, topicsSet(topic))
	check(err, "list reassignments")
	user, rate := unique("user"), 1e9
	_, err = admin.AlterClientQuotas(ctx, []kadm.AlterClientQuotaEntry{{
		Entity: kadm.ClientQuotaEntity{{Type: "user", Name: &user}},
		Ops:    []kadm.AlterClientQuotaOp{{Key: "producer_byte_rate", Value: rate}},
	}})
	check(err, "alter quotas")
	quotas, err := admin.DescribeClientQuotas(ctx, true, []kadm.DescribeClientQuotaComponent{
		{Type: "user", MatchName: &user, MatchType: 0},
	})
	check(err, "describe quotas")
	require(len(quotas) == 1 && quotas[0].Values[0].Value == rate, "quotas %+v", quotas)
	_, err = admin.AlterUserSCRAMs(ctx, nil, []kadm.UpsertSCRAM{
		{User: user, Mechanism: kadm.ScramSha256, Iterations: 8192, Password: "secret"},
	})
	check(err, "upsert scram")
	scrams, err := admin.DescribeUserSCRAMs(ctx, user)
	check(err, "describe scram")
	require(len(scrams[user].CredInfos) == 1, "scram %+v", scrams)
	_, err = admin.AlterUserSCRAMs(ctx, []kadm.DeleteSCRAM{{User: user, Mechanism: kadm.ScramSha256}}, nil)
	check(err, "delete scram")
	removed, err := admin.DeleteOffsets(ctx, group, topicsSet(topic))
	check(err, "delete offsets")
	check(removed.Error(), "delete offsets")
}

func topicsSet(topic string) kadm.TopicsSet {
	var set kadm.TopicsSet
	set.Add(topic, 0)
	return set
}

func epochRequest(topic string) kadm.OffsetForLeaderEpochRequest {
	var request kadm.OffsetForLeaderEpochRequest
	request.Add(topic, 0, 0)
	return request
}
