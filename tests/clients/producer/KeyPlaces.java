import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.StringSerializer;

/** Where a Java producer puts keys: KeyPlaces ADDRESS TOPIC [PARTITIONER], keys on standard input, one a line, "-" is
 * none. One line for each key: its partition, String.hashCode, Arrays.hashCode of its bytes. */
class KeyPlaces {
    public static void main(String[] words) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", words[0]);
        settings.put("linger.ms", "300");
        if (words.length > 2) settings.put("partitioner.class", words[2]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        List<String> keys = new ArrayList<>();
        for (String line = in.readLine(); line != null; line = in.readLine()) keys.add(line.equals("-") ? null : line);
        StringSerializer text = new StringSerializer();
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(settings, text, text)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (String key : keys) sent.add(producer.send(new ProducerRecord<>(words[1], key, "v")));
            for (int i = 0; i < keys.size(); i++) {
                String key = keys.get(i) == null ? "" : keys.get(i);
                int bytes = Arrays.hashCode(key.getBytes(StandardCharsets.UTF_8));
                System.out.println(sent.get(i).get().partition() + " " + key.hashCode() + " " + bytes);
            }
        }
    }
}
