// A client of github.com/twmb/franz-go for tests/compat/go: a line of words in, a line of words out.
// The second argument is the release of Kafka whose versions it sends at most.
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

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

var codecs = map[string]kgo.CompressionCodec{
	"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
	"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
}

func main() {
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		answer, err := obey(ctx, strings.Split(strings.TrimSuffix(line, "\n"), "\t"))
		cancel()
		if err != nil {
			answer = "error " + err.Error()
		}
		fmt.Println(answer)
	}
}

func obey(ctx context.Context, words []string) (string, error) {
	options := []kgo.Opt{kgo.SeedBrokers(os.Args[1])}
	if old := kversion.FromString(os.Args[2]); old != nil {
		options = append(options, kgo.MaxVersions(old), kgo.DisableIdempotentWrite())
	}
	switch words[0] {
	case "produce": // CODEC TOPIC KEY:VALUE:TIMESTAMP…
		options = append(options, kgo.ProducerBatchCompression(codecs[words[1]]),
			kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerLinger(50*time.Millisecond))
	case "read": // TOPIC OFFSET COUNT
		offset, _ := strconv.ParseInt(words[2], 10, 64)
		options = append(options, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
			words[1]: {0: kgo.NewOffset().At(offset)}}))
	case "group": // GROUP TOPIC COUNT
		options = append(options, kgo.ConsumerGroup(words[1]), kgo.ConsumeTopics(words[2]),
			kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return "", err
	}
	defer client.Close()
	if words[0] == "produce" {
		return "", client.ProduceSync(ctx, records(words[2], words[3:])...).FirstErr()
	}
	rows, err := read(ctx, client, words[3])
	if err == nil && words[0] == "group" {
		err = client.CommitUncommittedOffsets(ctx)
	}
	return rows, err
}

func records(topic string, words []string) []*kgo.Record {
	made := make([]*kgo.Record, len(words))
	for i, word := range words {
		fields := strings.Split(word, ":")
		ms, _ := strconv.ParseInt(fields[2], 10, 64)
		made[i] = &kgo.Record{Topic: topic, Key: bytes(fields[0]), Value: bytes(fields[1]), Timestamp: time.UnixMilli(ms)}
	}
	return made
}

func read(ctx context.Context, client *kgo.Client, count string) (string, error) {
	wanted, _ := strconv.Atoi(count)
	rows := []string{}
	for len(rows) < wanted {
		fetches := client.PollRecords(ctx, wanted-len(rows))
		if err := fetches.Err0(); err != nil {
			return "", err
		}
		if errors := fetches.Errors(); len(errors) > 0 {
			return "", errors[0].Err
		}
		fetches.EachRecord(func(r *kgo.Record) {
			ms := int64(-1)
			if r.Attrs.TimestampType() != -1 {
				ms = r.Timestamp.UnixMilli()
			}
			rows = append(rows, fmt.Sprintf("%d:%s:%s:%d", r.Offset, text(r.Key), text(r.Value), ms))
		})
	}
	return strings.Join(rows, "\t"), nil
}

func bytes(word string) []byte {
	if word == "-" {
		return nil
	}
	data, _ := base64.StdEncoding.DecodeString(word)
	return append([]byte{}, data...)
}

func text(data []byte) string {
	if data == nil {
		return "-"
	}
	return base64.StdEncoding.EncodeToString(data)
}
