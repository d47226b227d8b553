// A consumer of any release from 0.9 to 0.10, behind lines of words divided by tabs:
//
//   read TOPIC PARTITION OFFSET COUNT   -> RECORD... divided by tabs
//   join GROUP TOPIC                    -> an empty line
//   poll                                -> the RECORDs that came within a moment
//   commit                              -> an empty line
//   leave                               -> an empty line
//
// RECORD: OFFSET:KEY:VALUE:TIMESTAMP as in OldProducer; the timestamp is -1 before 0.10.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class OldConsumer {
    static KafkaConsumer<byte[], byte[]> member;

    public static void main(String[] arguments) throws Exception {
        KafkaConsumer<byte[], byte[]> reader = consumer(arguments[0], "reader");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                System.out.println(obey(arguments[0], reader, line.split("\t")));
            } catch (Exception wrong) {
                System.out.println("error " + wrong);
            }
        }
        reader.close();
    }

    static KafkaConsumer<byte[], byte[]> consumer(String address, String group) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", address);
        settings.put("group.id", group);
        settings.put("enable.auto.commit", false);
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", 10000);
        settings.put("heartbeat.interval.ms", 200);
        settings.put("key.deserializer", ByteArrayDeserializer.class.getName());
        settings.put("value.deserializer", ByteArrayDeserializer.class.getName());
        return new KafkaConsumer<byte[], byte[]>(settings);
    }

    static String obey(String address, KafkaConsumer<byte[], byte[]> reader, String[] words)
            throws Exception {
        switch (words[0]) {
            case "read":
                TopicPartition at = new TopicPartition(words[1], Integer.parseInt(words[2]));
                reader.assign(Collections.singletonList(at));
                reader.seek(at, Long.parseLong(words[3]));
                return poll(reader, Integer.parseInt(words[4]), 20000);
            case "join":
                member = consumer(address, words[1]);
                member.subscribe(Arrays.asList(words[2]));
                return "";
            case "poll":
                return poll(member, Integer.MAX_VALUE, 300);
            case "commit":
                member.commitSync();
                return "";
            default:
                member.close();
                return "";
        }
    }

    static String poll(KafkaConsumer<byte[], byte[]> from, int count, long wait) throws Exception {
        StringBuilder found = new StringBuilder();
        long deadline = System.currentTimeMillis() + wait;
        while (count > 0 && System.currentTimeMillis() < deadline) {
            for (ConsumerRecord<byte[], byte[]> record : from.poll(100)) {
                if (count-- > 0) {
                    found.append(found.length() == 0 ? "" : "\t").append(record.offset()).append(":");
                    found.append(text(record.key())).append(":").append(text(record.value()));
                    found.append(":").append(timestamp(record));
                }
            }
        }
        return found.toString();
    }

    static long timestamp(ConsumerRecord<byte[], byte[]> record) throws Exception {
        try {
            return (Long) ConsumerRecord.class.getMethod("timestamp").invoke(record);
        } catch (NoSuchMethodException none) {
            return -1;
        }
    }

    static String text(byte[] bytes) {
        return bytes == null ? "-" : Base64.getEncoder().encodeToString(bytes);
    }
}
