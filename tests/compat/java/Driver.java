// A Kafka client without a user: takes orders as JSON lines on stdin, answers each with a JSON line.
//
//   {"do":"produce","topic":T,"partition":P,"codec":C,"idempotent":B,"records":[RECORD...]}
//       -> {"offsets":[...]}
//   {"do":"read","topic":T,"partition":P,"offset":O,"count":N}  -> {"records":[RECORD...]}
//   {"do":"offset_at","topic":T,"partition":P,"timestamp":MS}   -> {"offset":O or null}
//   {"do":"transact","topic":T,"partition":P,"id":ID,"values":[TEXT...],"commit":B,
//    "group":G or null,"offset":O}     one transaction; with a group it commits the offset -> {}
//   {"do":"committed","topic":T,"partition":P}  what a reader of committed records sees
//       -> {"values":[TEXT...],"end":O}
//   {"do":"join","topic":T,"partition":0,"group":G}   becomes a member of a group -> {}
//   {"do":"poll"|"owned"|"commit"|"leave","topic":T,"partition":0}  of that member
//       -> {"values":[TEXT...]}, what came within a moment; {"partitions":[P...]}; {}; {}
//
// RECORD: key, value (base64 or null), timestamp (or null), headers [[name, base64 or null]...];
// when read also offset and timestamp_type. What goes wrong comes back as {"error":TEXT}.
// One source serves every client release from 2.7 on; it uses nothing newer than that.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class Driver {
    static final int BYTES_MAX = 12 * 1024 * 1024;
    static final long WAIT_MS = 30_000;
    static final ObjectMapper JSON = new ObjectMapper();

    final String address;
    final Map<String, Object> protection = new HashMap<>(); // NAME=VALUE of the command line
    final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    final KafkaConsumer<byte[], byte[]> consumer;
    KafkaConsumer<byte[], byte[]> member;

    Driver(String[] arguments) {
        address = arguments[0];
        for (int i = 1; i < arguments.length; i++) {
            int at = arguments[i].indexOf('=');
            protection.put(arguments[i].substring(0, at), arguments[i].substring(at + 1));
        }
        Map<String, Object> settings = readerSettings();
        settings.put("auto.offset.reset", "none");
        settings.put("check.crcs", true);
        settings.put("max.partition.fetch.bytes", BYTES_MAX);
        settings.put("max.poll.records", 100_000);
        consumer = new KafkaConsumer<>(settings);
    }

    Map<String, Object> readerSettings() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", address);
        settings.put("key.deserializer", ByteArrayDeserializer.class);
        settings.put("value.deserializer", ByteArrayDeserializer.class);
        settings.put("enable.auto.commit", false);
        settings.putAll(protection);
        return settings;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        Driver driver = new Driver(arguments);
        BufferedReader orders =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = orders.readLine()) != null) {
            ObjectNode answer;
            try {
                answer = driver.obey(JSON.readTree(line));
            } catch (Exception wrong) {
                answer = JSON.createObjectNode().put("error", String.valueOf(wrong));
            }
            out.println(JSON.writeValueAsString(answer));
        }
        driver.consumer.close(Duration.ZERO);
        for (KafkaProducer<byte[], byte[]> producer : driver.producers.values()) {
            producer.close(Duration.ZERO);
        }
    }

    ObjectNode obey(JsonNode order) throws Exception {
        TopicPartition at =
            new TopicPartition(order.get("topic").asText(), order.get("partition").asInt());
        switch (order.get("do").asText()) {
            case "produce":
                return produce(at, order);
            case "read":
                return read(at, order.get("offset").asLong(), order.get("count").asInt());
            case "transact":
                return transact(at, order);
            case "committed":
                return committed(at);
            case "join":
                return join(order.get("group").asText(), at.topic());
            case "poll":
                return poll();
            case "owned":
                return owned();
            case "commit":
                member.commitSync();
                return JSON.createObjectNode();
            case "leave":
                member.close(Duration.ofSeconds(10));
                return JSON.createObjectNode();
            case "offset_at":
                return offsetAt(at, order.get("timestamp").asLong());
            default:
                throw new IllegalArgumentException("no such order: " + order.get("do"));
        }
    }

    KafkaProducer<byte[], byte[]> producer(String codec, boolean idempotent) {
        return producers.computeIfAbsent(codec + idempotent, name -> {
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", address);
            settings.put("key.serializer", ByteArraySerializer.class);
            settings.put("value.serializer", ByteArraySerializer.class);
            settings.put("acks", "all");
            settings.put("compression.type", codec);
            settings.put("enable.idempotence", idempotent);
            settings.put("linger.ms", 200);
            settings.put("batch.size", 65536);
            settings.put("max.request.size", BYTES_MAX);
            settings.put("delivery.timeout.ms", 30_500);
            settings.putAll(protection);
            return new KafkaProducer<>(settings);
        });
    }

    KafkaProducer<byte[], byte[]> transactional(String id) {
        return producers.computeIfAbsent("transactional " + id, name -> {
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", address);
            settings.put("key.serializer", ByteArraySerializer.class);
            settings.put("value.serializer", ByteArraySerializer.class);
            settings.put("transactional.id", id);
            settings.put("transaction.timeout.ms", 20_000);
            settings.put("delivery.timeout.ms", 30_500);
            KafkaProducer<byte[], byte[]> made = new KafkaProducer<>(settings);
            made.initTransactions();
            return made;
        });
    }

    ObjectNode transact(TopicPartition at, JsonNode order) throws Exception {
        KafkaProducer<byte[], byte[]> producer = transactional(order.get("id").asText());
        producer.beginTransaction();
        for (JsonNode value : order.get("values")) {
            producer.send(new ProducerRecord<>(at.topic(), at.partition(), null,
                value.asText().getBytes(StandardCharsets.UTF_8)));
        }
        producer.flush();
        if (!order.get("group").isNull()) {
            producer.sendOffsetsToTransaction(
                Collections.singletonMap(at, new OffsetAndMetadata(order.get("offset").asLong())),
                new ConsumerGroupMetadata(order.get("group").asText()));
        }
        if (order.get("commit").asBoolean()) {
            producer.commitTransaction();
        } else {
            producer.abortTransaction();
        }
        return JSON.createObjectNode();
    }

    ObjectNode join(String group, String topic) {
        Map<String, Object> settings = readerSettings();
        settings.put("group.id", group);
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", 6000);
        settings.put("heartbeat.interval.ms", 300);
        member = new KafkaConsumer<>(settings);
        member.subscribe(Collections.singleton(topic));
        return JSON.createObjectNode();
    }

    ObjectNode poll() {
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode values = answer.putArray("values");
        for (ConsumerRecord<byte[], byte[]> record : member.poll(Duration.ofMillis(100))) {
            values.add(new String(record.value(), StandardCharsets.UTF_8));
        }
        return answer;
    }

    ObjectNode owned() {
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode partitions = answer.putArray("partitions");
        for (TopicPartition one : member.assignment()) {
            partitions.add(one.partition());
        }
        return answer;
    }

    ObjectNode committed(TopicPartition at) {
        Map<String, Object> settings = readerSettings();
        settings.put("isolation.level", "read_committed");
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode values = answer.putArray("values");
        try (KafkaConsumer<byte[], byte[]> reader = new KafkaConsumer<>(settings)) {
            reader.assign(Collections.singleton(at));
            reader.seekToBeginning(Collections.singleton(at));
            long end = reader.endOffsets(Collections.singleton(at)).get(at);
            long deadline = System.currentTimeMillis() + WAIT_MS;
            while (reader.position(at) < end && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<byte[], byte[]> record : reader.poll(Duration.ofMillis(200))) {
                    values.add(new String(record.value(), StandardCharsets.UTF_8));
                }
            }
            answer.put("end", end);
        }
        return answer;
    }

    ObjectNode produce(TopicPartition at, JsonNode order) throws Exception {
        KafkaProducer<byte[], byte[]> producer =
            producer(order.get("codec").asText(), order.get("idempotent").asBoolean());
        producer.partitionsFor(at.topic());
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (JsonNode record : order.get("records")) {
            List<Header> headers = new ArrayList<>();
            for (JsonNode header : record.get("headers")) {
                headers.add(new RecordHeader(header.get(0).asText(), bytes(header.get(1))));
            }
            JsonNode timestamp = record.get("timestamp");
            sent.add(producer.send(new ProducerRecord<>(
                at.topic(), at.partition(), timestamp.isNull() ? null : timestamp.asLong(),
                bytes(record.get("key")), bytes(record.get("value")), headers)));
        }
        producer.flush();
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode offsets = answer.putArray("offsets");
        for (Future<RecordMetadata> one : sent) {
            offsets.add(one.get(WAIT_MS, TimeUnit.MILLISECONDS).offset());
        }
        return answer;
    }

    ObjectNode read(TopicPartition at, long offset, int count) {
        consumer.assign(Collections.singletonList(at));
        consumer.seek(at, offset);
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode records = answer.putArray("records");
        long deadline = System.currentTimeMillis() + WAIT_MS;
        while (records.size() < count) {
            if (System.currentTimeMillis() > deadline) {
                throw new IllegalStateException("read " + records.size() + " of " + count);
            }
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(500))) {
                if (records.size() < count) {
                    describe(records.addObject(), record);
                }
            }
        }
        return answer;
    }

    static void describe(ObjectNode into, ConsumerRecord<byte[], byte[]> record) {
        into.put("offset", record.offset());
        into.put("timestamp", record.timestamp());
        into.put("timestamp_type", record.timestampType().toString());
        into.put("key", text(record.key()));
        into.put("value", text(record.value()));
        ArrayNode headers = into.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
    }

    ObjectNode offsetAt(TopicPartition at, long timestamp) {
        OffsetAndTimestamp found =
            consumer.offsetsForTimes(Collections.singletonMap(at, timestamp)).get(at);
        ObjectNode answer = JSON.createObjectNode();
        if (found == null) {
            return answer.putNull("offset");
        }
        return answer.put("offset", found.offset());
    }

    static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : Base64.getDecoder().decode(text.asText());
    }

    static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }
}
