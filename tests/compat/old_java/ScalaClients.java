// The Scala producer and the ZooKeeper consumer of Kafka 0.8 to 0.10, behind lines of words divided
// by tabs. Started with ADDRESS,ZOOKEEPER:
//
//   produce CODEC TOPIC RECORD...       -> an empty line, when the broker has them
//   join GROUP TOPIC STORAGE            -> an empty line; STORAGE of offsets: zookeeper or kafka
//   read COUNT                          -> OFFSET:KEY:VALUE:-1... divided by tabs
//   commit                              -> an empty line
//   leave                               -> an empty line
//
// RECORD: KEY:VALUE, each in base 64, - for null.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.List;
import java.util.Properties;
import kafka.consumer.Consumer;
import kafka.consumer.ConsumerConfig;
import kafka.consumer.ConsumerIterator;
import kafka.javaapi.consumer.ConsumerConnector;
import kafka.javaapi.producer.Producer;
import kafka.message.MessageAndMetadata;
import kafka.producer.KeyedMessage;
import kafka.producer.ProducerConfig;

public class ScalaClients {
    static ConsumerConnector connector;
    static ConsumerIterator<byte[], byte[]> stream;

    public static void main(String[] arguments) throws Exception {
        String[] addresses = arguments[0].split(",");
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                System.out.println(obey(addresses[0], addresses[1], line.split("\t")));
            } catch (Exception wrong) {
                System.out.println("error " + wrong);
            }
        }
        System.exit(0);
    }

    static String obey(String address, String zookeeper, String[] words) throws Exception {
        switch (words[0]) {
            case "produce":
                produce(address, words);
                return "";
            case "join":
                Properties settings = new Properties();
                settings.put("zookeeper.connect", zookeeper);
                settings.put("group.id", words[1]);
                settings.put("auto.offset.reset", "smallest");
                settings.put("auto.commit.enable", "false");
                settings.put("consumer.timeout.ms", "20000");
                settings.put("offsets.storage", words[3]);
                settings.put("dual.commit.enabled", "false");
                connector = Consumer.createJavaConsumerConnector(new ConsumerConfig(settings));
                stream = connector.createMessageStreams(Collections.singletonMap(words[2], 1))
                    .get(words[2]).get(0).iterator();
                return "";
            case "read":
                StringBuilder found = new StringBuilder();
                for (int left = Integer.parseInt(words[1]); left > 0; left--) {
                    stream.hasNext();
                    MessageAndMetadata<byte[], byte[]> one = stream.next();
                    found.append(found.length() == 0 ? "" : "\t").append(one.offset());
                    found.append(":").append(text(one.key()));
                    found.append(":").append(text(one.message())).append(":-1");
                }
                return found.toString();
            case "commit":
                connector.commitOffsets();
                return "";
            default:
                connector.shutdown();
                return "";
        }
    }

    static void produce(String address, String[] words) {
        Properties settings = new Properties();
        settings.put("metadata.broker.list", address);
        settings.put("request.required.acks", "-1");
        settings.put("compression.codec", words[1]);
        Producer<byte[], byte[]> producer = new Producer<>(new ProducerConfig(settings));
        List<KeyedMessage<byte[], byte[]>> messages = new ArrayList<>();
        for (int i = 3; i < words.length; i++) {
            String[] fields = words[i].split(":", -1);
            messages.add(new KeyedMessage<>(words[2], bytes(fields[0]), bytes(fields[1])));
        }
        producer.send(messages);
        producer.close();
    }

    static byte[] bytes(String text) {
        return text.equals("-") ? null : Base64.getDecoder().decode(text);
    }

    static String text(byte[] data) {
        return data == null ? "-" : Base64.getEncoder().encodeToString(data);
    }
}
