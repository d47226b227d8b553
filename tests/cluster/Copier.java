// A program that copies one topic to another in transactions, with its positions: a member of a
// group. It prints "committed N" for each transaction of N records, and "aborted WHY".
//
//   Copier SERVERS GROUP TRANSACTIONAL_ID INPUT OUTPUT

import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Copier {
    static KafkaConsumer<byte[], byte[]> consumer;
    static KafkaProducer<byte[], byte[]> producer;

    public static void main(String[] arguments) {
        Map<String, Object> common = new HashMap<>();
        common.put("bootstrap.servers", arguments[0]);
        common.put("request.timeout.ms", 3000);
        common.put("metadata.max.age.ms", 1000);
        consumer = new KafkaConsumer<>(consumerSettings(common, arguments[1]));
        producer = new KafkaProducer<>(producerSettings(common, arguments[2]));
        untilDone(producer::initTransactions);
        consumer.subscribe(java.util.List.of(arguments[3]));
        while (true) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
            if (records.isEmpty()) {
                continue;
            }
            try {
                copy(records, arguments[4]);
                System.out.println("committed " + records.count());
            } catch (ProducerFencedException fenced) {
                throw fenced; // another program has this transactional id
            } catch (KafkaException wrong) {
                untilDone(producer::abortTransaction);
                untilDone(Copier::rewind);
                System.out.println("aborted " + wrong);
            }
        }
    }

    static Map<String, Object> consumerSettings(Map<String, Object> common, String group) {
        Map<String, Object> settings = new HashMap<>(common);
        settings.put("group.id", group);
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", 10_000);
        settings.put("heartbeat.interval.ms", 500);
        settings.put("default.api.timeout.ms", 10_000);
        settings.put("key.deserializer", ByteArrayDeserializer.class);
        settings.put("value.deserializer", ByteArrayDeserializer.class);
        return settings;
    }

    static Map<String, Object> producerSettings(Map<String, Object> common, String id) {
        Map<String, Object> settings = new HashMap<>(common);
        settings.put("transactional.id", id);
        settings.put("transaction.timeout.ms", 20_000);
        settings.put("delivery.timeout.ms", 20_000);
        settings.put("max.block.ms", 10_000);
        settings.put("key.serializer", ByteArraySerializer.class);
        settings.put("value.serializer", ByteArraySerializer.class);
        return settings;
    }

    static void copy(ConsumerRecords<byte[], byte[]> records, String output) {
        Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
        producer.beginTransaction();
        for (ConsumerRecord<byte[], byte[]> record : records) {
            producer.send(
                new ProducerRecord<>(output, record.partition(), record.key(), record.value()));
            positions.put(
                new TopicPartition(record.topic(), record.partition()),
                new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(positions, consumer.groupMetadata());
        untilDone(producer::commitTransaction);
    }

    /** Repeats a call that may be repeated after a timeout, until it returns. */
    static void untilDone(Runnable call) {
        while (true) {
            try {
                call.run();
                return;
            } catch (TimeoutException late) {
                System.out.println("late " + late.getMessage());
            }
        }
    }

    /** Continues at the positions that the group has committed. */
    static void rewind() {
        Map<TopicPartition, OffsetAndMetadata> committed =
            consumer.committed(consumer.assignment());
        for (TopicPartition one : consumer.assignment()) {
            OffsetAndMetadata position = committed.get(one);
            consumer.seek(one, position == null ? 0 : position.offset());
        }
    }
}
