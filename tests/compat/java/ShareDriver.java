// Share consumers (KIP-932) without a user: orders as JSON lines on stdin, a JSON line for each.
//
//   {"do":"open","name":N,"group":G,"topics":[T...],"settings":{...}}   subscribes -> {}
//   {"do":"poll","name":N,"ms":M}   -> {"records":[{topic,partition,offset,value,count}...]}
//   {"do":"acknowledge","name":N,"topic":T,"partition":P,"offset":O,"type":TYPE}   -> {}
//   {"do":"commit","name":N}        waits until it is kept
//       -> {"partitions":{"T-P":NAME OF THE ERROR or "none"}}
//   {"do":"close","name":N}         as an application ends -> {}
//
// What goes wrong comes back as {"error":TEXT}. Compiles with clients from 4.2 on.

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
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ShareDriver {
    static final ObjectMapper JSON = new ObjectMapper();

    static class Member {
        KafkaShareConsumer<String, String> consumer;
        final Map<String, ConsumerRecord<String, String>> records = new HashMap<>();
    }

    final String address;
    final Map<String, Member> members = new HashMap<>();

    ShareDriver(String address) {
        this.address = address;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        ShareDriver driver = new ShareDriver(arguments[0]);
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
        for (Member member : driver.members.values()) {
            member.consumer.close(Duration.ZERO);
        }
    }

    ObjectNode obey(JsonNode order) {
        String name = order.get("name").asText();
        switch (order.get("do").asText()) {
            case "open":
                return open(name, order);
            case "poll":
                return poll(members.get(name), order.get("ms").asLong());
            case "acknowledge":
                return acknowledge(members.get(name), order);
            case "commit":
                return commit(members.get(name));
            case "close":
                members.remove(name).consumer.close(Duration.ofSeconds(10));
                return JSON.createObjectNode();
            default:
                throw new IllegalArgumentException("no such order: " + order.get("do"));
        }
    }

    ObjectNode open(String name, JsonNode order) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", address);
        settings.put("group.id", order.get("group").asText());
        settings.put("client.id", name);
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        order.get("settings").fields().forEachRemaining(
            row -> settings.put(row.getKey(), row.getValue().asText()));
        Member member = new Member();
        member.consumer = new KafkaShareConsumer<>(settings);
        List<String> topics = new ArrayList<>();
        order.get("topics").forEach(topic -> topics.add(topic.asText()));
        member.consumer.subscribe(topics);
        members.put(name, member);
        return JSON.createObjectNode();
    }

    ObjectNode poll(Member member, long ms) {
        ObjectNode answer = JSON.createObjectNode();
        ArrayNode told = answer.putArray("records");
        member.records.clear();
        for (ConsumerRecord<String, String> record : member.consumer.poll(Duration.ofMillis(ms))) {
            member.records.put(place(record.topic(), record.partition(), record.offset()), record);
            told.addObject()
                .put("topic", record.topic())
                .put("partition", record.partition())
                .put("offset", record.offset())
                .put("value", record.value())
                .put("count", record.deliveryCount().orElse((short) 0).intValue());
        }
        return answer;
    }

    static String place(String topic, int partition, long offset) {
        return topic + "-" + partition + "@" + offset;
    }

    ObjectNode acknowledge(Member member, JsonNode order) {
        String place = place(order.get("topic").asText(), order.get("partition").asInt(),
            order.get("offset").asLong());
        AcknowledgeType type = AcknowledgeType.valueOf(order.get("type").asText());
        member.consumer.acknowledge(member.records.get(place), type);
        return JSON.createObjectNode();
    }

    ObjectNode commit(Member member) {
        ObjectNode answer = JSON.createObjectNode();
        ObjectNode told = answer.putObject("partitions");
        Map<TopicIdPartition, Optional<KafkaException>> outcome =
            member.consumer.commitSync(Duration.ofSeconds(20));
        outcome.forEach((partition, wrong) -> told.put(
            partition.topic() + "-" + partition.partition(),
            wrong.map(error -> error.getClass().getSimpleName()).orElse("none")));
        return answer;
    }
}
