// A client of github.com/segmentio/kafka-go for tests/compat/go: a line of words in, a line of words
// out. go.mod takes its newest release, old.mod its first one.
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

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/gzip"
	"github.com/segmentio/kafka-go/lz4"
	"github.com/segmentio/kafka-go/snappy"
)

var codecs = map[string]kafka.CompressionCodec{
	"none": nil, "gzip": gzip.NewCompressionCodec(), "snappy": snappy.NewCompressionCodec(),
	"lz4": lz4.NewCompressionCodec(),
}

const wait = 200 * time.Millisecond

func main() {
	address := os.Args[1]
	lines := bufio.NewReaderSize(os.Stdin, 1<<20)
	for {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		words := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		answer, err := obey(ctx, address, words)
		cancel()
		if err != nil {
			answer = "error " + err.Error()
		}
		fmt.Println(answer)
	}
}

func obey(ctx context.Context, address string, words []string) (string, error) {
	switch words[0] {
	case "produce": // CODEC TOPIC KEY:VALUE:TIMESTAMP…
		writer := kafka.NewWriter(kafka.WriterConfig{
			Brokers: []string{address}, Topic: words[2], CompressionCodec: codecs[words[1]],
			BatchTimeout: 50 * time.Millisecond, RequiredAcks: -1,
		})
		defer writer.Close()
		return "", writer.WriteMessages(ctx, messages(words[3:])...)
	case "read": // TOPIC OFFSET COUNT
		reader := kafka.NewReader(kafka.ReaderConfig{
			Brokers: []string{address}, Topic: words[1], Partition: 0, MinBytes: 1, MaxBytes: 1 << 20,
			MaxWait: wait,
		})
		defer reader.Close()
		offset, _ := strconv.ParseInt(words[2], 10, 64)
		if err := reader.SetOffset(offset); err != nil {
			return "", err
		}
		return read(ctx, reader.ReadMessage, words[3])
	default: // group GROUP TOPIC COUNT
		reader := kafka.NewReader(kafka.ReaderConfig{
			Brokers: []string{address}, GroupID: words[1], Topic: words[2], MinBytes: 1, MaxBytes: 1 << 20,
			MaxWait: wait, HeartbeatInterval: wait, SessionTimeout: 6 * time.Second,
		})
		defer reader.Close()
		return read(ctx, reader.ReadMessage, words[3]) // which commits
	}
}

func messages(words []string) []kafka.Message {
	made := make([]kafka.Message, len(words))
	for i, word := range words {
		fields := strings.Split(word, ":")
		ms, _ := strconv.ParseInt(fields[2], 10, 64)
		made[i] = kafka.Message{Key: bytes(fields[0]), Value: bytes(fields[1]), Time: time.Unix(0, ms*1e6)}
	}
	return made
}

func read(ctx context.Context, next func(context.Context) (kafka.Message, error), count string) (string, error) {
	wanted, _ := strconv.Atoi(count)
	rows := make([]string, wanted)
	for i := range rows {
		m, err := next(ctx)
		if err != nil {
			return "", err
		}
		ms := int64(-1)
		if !m.Time.IsZero() {
			ms = m.Time.UnixNano() / 1e6
		}
		rows[i] = fmt.Sprintf("%d:%s:%s:%d", m.Offset, text(m.Key), text(m.Value), ms)
	}
	return strings.Join(rows, "\t"), nil
}

func bytes(word string) []byte {
	if word == "-" {
		return nil
	}
	data, _ := base64.StdEncoding.DecodeString(word)
	if data == nil {
		data = []byte{}
	}
	return data
}

func text(data []byte) string {
	if data == nil {
		return "-"
	}
	return base64.StdEncoding.EncodeToString(data)
}
