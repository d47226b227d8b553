// A producer of any release from 0.8.2 to 0.10, behind lines: it uses nothing newer than 0.8.2, and
// asks by reflection for what later releases have. Fields of a line are divided by tabs:
//
//   CODEC TOPIC PARTITION RECORD...    -> the offset of each record, divided by tabs
//
// RECORD: KEY:VALUE:TIMESTAMP with keys and values in base64, "-" for null; releases before 0.10 have
// no timestamps. What goes wrong comes back as a line that begins with "error".

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.Constructor;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class OldProducer {
    static final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                System.out.println(send(arguments[0], line.split("\t")));
            } catch (Exception wrong) {
                System.out.println("error " + wrong);
            }
        }
        for (KafkaProducer<byte[], byte[]> producer : producers.values()) {
            producer.close();
        }
    }

    static KafkaProducer<byte[], byte[]> producer(String address, String codec) {
        if (!producers.containsKey(codec)) {
            Map<String, Object> settings = new HashMap<>();
            settings.put("bootstrap.servers", address);
            settings.put("key.serializer", ByteArraySerializer.class.getName());
            settings.put("value.serializer", ByteArraySerializer.class.getName());
            settings.put("acks", "all");
            settings.put("compression.type", codec);
            settings.put("linger.ms", 100);
            producers.put(codec, new KafkaProducer<byte[], byte[]>(settings));
        }
        return producers.get(codec);
    }

    static String send(String address, String[] words) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(address, words[0]);
        producer.partitionsFor(words[1]);
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (int i = 3; i < words.length; i++) {
            String[] fields = words[i].split(":", -1);
            sent.add(producer.send(record(words[1], Integer.valueOf(words[2]), fields)));
        }
        StringBuilder offsets = new StringBuilder();
        for (Future<RecordMetadata> one : sent) {
            offsets.append(offsets.length() == 0 ? "" : "\t");
            offsets.append(one.get(20, TimeUnit.SECONDS).offset());
        }
        return offsets.toString();
    }

    @SuppressWarnings("unchecked")
    static ProducerRecord<byte[], byte[]> record(String topic, Integer partition, String[] fields)
            throws Exception {
        byte[] key = bytes(fields[0]);
        byte[] value = bytes(fields[1]);
        for (Constructor<?> one : ProducerRecord.class.getConstructors()) {
            if (one.getParameterTypes().length == 5 && one.getParameterTypes()[2] == Long.class) {
                return (ProducerRecord<byte[], byte[]>) one.newInstance(
                    topic, partition, Long.valueOf(fields[2]), key, value);
            }
        }
        return new ProducerRecord<byte[], byte[]>(topic, partition, key, value);
    }

    static byte[] bytes(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text);
    }
}
