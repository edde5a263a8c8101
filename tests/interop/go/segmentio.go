package main

import (
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
)

func kafkaGo(bootstrap, _ string) {
	ctx, cancel := limit()
	defer cancel()
	conn, err := kafka.DialContext(ctx, "tcp", bootstrap)
	check(err, "dial")
	topic, group := unique("segmentio"), unique("group")
	check(conn.CreateTopics(kafka.TopicConfig{Topic: topic, NumPartitions: 3, ReplicationFactor: 1}), "create")
	total := 0
	for codec := kafka.Compression(0); codec <= kafka.Zstd; codec++ {
		writer := &kafka.Writer{
			Addr: kafka.TCP(bootstrap), Topic: topic, Balancer: &kafka.RoundRobin{}, Compression: codec,
			BatchTimeout: 5 * time.Millisecond, RequiredAcks: kafka.RequireAll,
		}
		var messages []kafka.Message
		for i := 0; i < 30; i++ {
			messages = append(messages, kafka.Message{
				Key: []byte(fmt.Sprint(i)), Value: []byte(fmt.Sprintf("%v %d", codec, i)), Headers: []kafka.Header{{Key: "h", Value: []byte("v")}},
			})
		}
		check(writer.WriteMessages(ctx, messages...), "write with %v", codec)
		check(writer.Close(), "close")
		total += len(messages)
	}
	reader := func() *kafka.Reader {
		return kafka.NewReader(kafka.ReaderConfig{
			Brokers: []string{bootstrap}, GroupID: group, Topic: topic, MaxWait: 200 * time.Millisecond,
			StartOffset: kafka.FirstOffset, SessionTimeout: 6 * time.Second, HeartbeatInterval: 200 * time.Millisecond,
		})
	}
	first := reader()
	seen := map[string]bool{}
	for i := 0; i < total; i++ {
		message, err := first.FetchMessage(ctx)
		check(err, "fetch after %d", i)
		seen[string(message.Value)] = true
		check(first.CommitMessages(ctx, message), "commit")
	}
	require(len(seen) == total, "%d different records", len(seen))
	check(first.Close(), "close")
	client := &kafka.Client{Addr: kafka.TCP(bootstrap)}
	fetched, err := client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: group, Topics: map[string][]int{topic: {0, 1, 2}}})
	check(err, "offset fetch")
	sum := int64(0)
	for _, partition := range fetched.Topics[topic] {
		sum += partition.CommittedOffset
	}
	require(sum == int64(total), "committed %d of %d", sum, total)
	offsets, err := client.ListOffsets(ctx, &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: {kafka.LastOffsetOf(0), kafka.FirstOffsetOf(0)}}})
	check(err, "list offsets")
	require(offsets.Topics[topic][0].LastOffset > 0, "offsets %+v", offsets.Topics)
	metadata, err := client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	check(err, "metadata")
	require(len(metadata.Topics[0].Partitions) == 3, "metadata %+v", metadata.Topics)
	described, err := client.DescribeGroups(ctx, &kafka.DescribeGroupsRequest{GroupIDs: []string{group}})
	check(err, "describe")
	require(described.Groups[0].GroupState == "Empty", "groups %+v", described.Groups)
	one := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{bootstrap}, Topic: topic, Partition: 1, MaxWait: 100 * time.Millisecond})
	check(one.SetOffset(kafka.FirstOffset), "seek")
	read, stop := context.WithTimeout(ctx, 20*time.Second)
	defer stop()
	_, err = one.ReadMessage(read)
	check(err, "read one partition")
	check(one.Close(), "close")
	transaction, err := client.InitProducerID(ctx, &kafka.InitProducerIDRequest{TransactionalID: unique("tx"), TransactionTimeoutMs: 10000})
	check(err, "init producer id")
	check(transaction.Error, "init producer id")
	check(conn.DeleteTopics(topic), "delete")
}
