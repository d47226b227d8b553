// A client of github.com/IBM/sarama for tests/compat/go: a line of words in, a line of words out. The
// second argument is the release of Kafka that it takes the broker for.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

var codecs = map[string]sarama.CompressionCodec{
	"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
	"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
}

func main() {
	brokers := []string{os.Args[1]}
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		answer, err := obey(brokers, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
		if err != nil {
			answer = "error " + err.Error()
		}
		fmt.Println(answer)
	}
}

func obey(brokers, words []string) (string, error) {
	config := sarama.NewConfig()
	version, err := sarama.ParseKafkaVersion(os.Args[2])
	if err != nil {
		return "", err
	}
	config.Version = version
	switch words[0] {
	case "produce": // CODEC TOPIC KEY:VALUE:TIMESTAMP…
		config.Producer.Compression = codecs[words[1]]
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Producer.Return.Successes = true
		config.Producer.Partitioner = sarama.NewManualPartitioner
		config.Producer.Flush.Frequency = 50 * time.Millisecond
		producer, err := sarama.NewSyncProducer(brokers, config)
		if err != nil {
			return "", err
		}
		defer producer.Close()
		return "", producer.SendMessages(messages(words[2], words[3:]))
	case "read": // TOPIC OFFSET COUNT
		consumer, err := sarama.NewConsumer(brokers, config)
		if err != nil {
			return "", err
		}
		defer consumer.Close()
		offset, _ := strconv.ParseInt(words[2], 10, 64)
		partition, err := consumer.ConsumePartition(words[1], 0, offset)
		if err != nil {
			return "", err
		}
		defer partition.Close()
		return read(partition.Messages(), words[3])
	default: // group GROUP TOPIC COUNT
		config.Consumer.Offsets.Initial = sarama.OffsetOldest
		group, err := sarama.NewConsumerGroup(brokers, words[1], config)
		if err != nil {
			return "", err
		}
		defer group.Close()
		member := &member{count: words[3]}
		if err := group.Consume(context.Background(), []string{words[2]}, member); err != nil {
			return "", err
		}
		return member.rows, member.err
	}
}

// member reads some records of one session, and commits them.
type member struct {
	count, rows string
	err         error
}

func (m *member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (m *member) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	m.rows, m.err = read(claim.Messages(), m.count)
	wanted, _ := strconv.ParseInt(m.count, 10, 64)
	session.MarkOffset(claim.Topic(), claim.Partition(), claim.InitialOffset()+wanted, "")
	if claim.InitialOffset() < 0 {
		session.MarkOffset(claim.Topic(), claim.Partition(), wanted, "")
	}
	return nil // the end of a claim ends the session
}

func messages(topic string, words []string) []*sarama.ProducerMessage {
	made := make([]*sarama.ProducerMessage, len(words))
	for i, word := range words {
		fields := strings.Split(word, ":")
		ms, _ := strconv.ParseInt(fields[2], 10, 64)
		made[i] = &sarama.ProducerMessage{Topic: topic, Timestamp: time.UnixMilli(ms)}
		if fields[0] != "-" {
			made[i].Key = sarama.ByteEncoder(bytes(fields[0]))
		}
		if fields[1] != "-" {
			made[i].Value = sarama.ByteEncoder(bytes(fields[1]))
		}
	}
	return made
}

func read(from <-chan *sarama.ConsumerMessage, count string) (string, error) {
	wanted, _ := strconv.Atoi(count)
	rows := make([]string, wanted)
	for i := range rows {
		select {
		case m := <-from:
			ms := int64(-1)
			if !m.Timestamp.IsZero() {
				ms = m.Timestamp.UnixMilli()
			}
			rows[i] = fmt.Sprintf("%d:%s:%s:%d", m.Offset, text(m.Key), text(m.Value), ms)
		case <-time.After(30 * time.Second):
			return "", fmt.Errorf("%d of %d records came", i, wanted)
		}
	}
	return strings.Join(rows, "\t"), nil
}

func bytes(word string) []byte {
	data, _ := base64.StdEncoding.DecodeString(word)
	return append([]byte{}, data...)
}

func text(data []byte) string {
	if data == nil {
		return "-"
	}
	return base64.StdEncoding.EncodeToString(data)
}
