// Word count with Kafka Streams, exactly once (v2), until standard input ends.
//
//   WordCount ADDRESS APPLICATION STATE_DIR SESSION_MS TRANSACTION_MS PROTOCOL
//
// PROTOCOL is classic or streams (KIP-1071, whose session timeout the broker sets).
// Lines of words come from the topic "lines". Each count of a word goes to "counts", each count of a
// word within its day to "days" (key WORD@DAY); no cache lies between, so that the records of a key
// are 1, 2, 3 and so on. Both counts are kept in stores of their own (in Kafka: a compacted topic,
// and one that is compacted and deleted after a time), behind one repartition topic, whose records
// are deleted as they are read. Says "state NAME" on standard output, and "failed TEXT" for what no
// retry helps against.

import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;

public class WordCount {
    public static void main(String[] arguments) throws Exception {
        KafkaStreams streams = new KafkaStreams(topology(), settings(arguments));
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        streams.setUncaughtExceptionHandler(error -> {
            System.out.println("failed " + error);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        while (System.in.read() >= 0) {
            // Nothing is said to this program but its end.
        }
        System.exit(streams.close(Duration.ofSeconds(20)) ? 0 : 1);
    }

    static Topology topology() {
        Serde<String> text = Serdes.String();
        Produced<String, Long> counts = Produced.with(text, Serdes.Long());
        StreamsBuilder builder = new StreamsBuilder();
        KGroupedStream<String, String> words = builder.stream("lines", Consumed.with(text, text))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("words", text, text));
        words.count(Materialized.as("totals")).toStream().to("counts", counts);
        words.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofDays(1), Duration.ofDays(1)))
            .count(Materialized.as("daily"))
            .toStream((window, count) ->
                window.key() + "@" + window.window().startTime().toString().substring(0, 10))
            .to("days", counts);
        return builder.build();
    }

    static Properties settings(String[] arguments) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 150);
        settings.put(StreamsConfig.REPARTITION_PURGE_INTERVAL_MS_CONFIG, 400);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        // So that there are old segments for the cleaner, and for DeleteRecords to end.
        settings.put(StreamsConfig.topicPrefix("segment.ms"), "1000");
        settings.put(StreamsConfig.topicPrefix("min.cleanable.dirty.ratio"), "0.01");
        settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, arguments[5]);
        if (arguments[5].equals("classic")) {
            int session = Integer.parseInt(arguments[3]);
            settings.put(StreamsConfig.mainConsumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), session);
            settings.put(StreamsConfig.mainConsumerPrefix(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG), session / 8);
        }
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.TRANSACTION_TIMEOUT_CONFIG),
            Integer.parseInt(arguments[4]));
        settings.put(StreamsConfig.producerPrefix(ProducerConfig.LINGER_MS_CONFIG), 5);
        return settings;
    }
}
