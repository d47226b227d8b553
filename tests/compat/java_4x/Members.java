// Consumers of one JVM, members of groups: takes orders as JSON lines on stdin, answers each with
// a JSON line. For clients from 4.0 on.
//
//   {"do":"open","name":N,"settings":{...},"topics":[...] or "pattern":RE2}   -> {}
//   {"do":"poll","name":N,"ms":MS}   -> {"values":[TEXT...],"owned":["topic-partition"...],
//                                        "events":["assigned topic-partition ..."...],"epoch":E}
//   {"do":"commit","name":N}         commits what was polled -> {}
//   {"do":"close","name":N}          leaves the group -> {"events":[...]}
//
// What goes wrong comes back as {"error":TEXT}.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.CloseOptions;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Members {
    static final ObjectMapper JSON = new ObjectMapper();

    static class Member implements ConsumerRebalanceListener {
        final KafkaConsumer<String, String> consumer;
        final List<String> events = new ArrayList<>();

        Member(Map<String, Object> settings) {
            consumer = new KafkaConsumer<>(settings);
        }

        void told(String what, Collection<TopicPartition> partitions) {
            events.add(what + " " + String.join(" ", names(partitions)));
        }

        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            told("assigned", partitions);
        }

        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            told("revoked", partitions);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> partitions) {
            told("lost", partitions);
        }
    }

    static List<String> names(Collection<TopicPartition> partitions) {
        List<String> found = new ArrayList<>();
        for (TopicPartition partition : partitions) {
            found.add(partition.toString());
        }
        found.sort(null);
        return found;
    }

    final String address;
    final Map<String, Member> members = new HashMap<>();

    Members(String address) {
        this.address = address;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        Members all = new Members(arguments[0]);
        BufferedReader orders =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        String line;
        while ((line = orders.readLine()) != null) {
            ObjectNode answer;
            try {
                answer = all.obey(JSON.readTree(line));
            } catch (Exception wrong) {
                answer = JSON.createObjectNode().put("error", String.valueOf(wrong));
            }
            out.println(JSON.writeValueAsString(answer));
        }
        for (Member member : all.members.values()) {
            member.consumer.close(CloseOptions.timeout(Duration.ofSeconds(5)));
        }
    }

    ObjectNode obey(JsonNode order) {
        String name = order.get("name").asText();
        if (order.get("do").asText().equals("open")) {
            members.put(name, open(order));
            return JSON.createObjectNode();
        }
        Member member = members.get(name);
        switch (order.get("do").asText()) {
            case "poll":
                return poll(member, order.get("ms").asLong());
            case "commit":
                member.consumer.commitSync();
                return JSON.createObjectNode();
            case "close":
                member.consumer.close(CloseOptions.timeout(Duration.ofSeconds(20)));
                members.remove(name);
                return events(member);
            default:
                throw new IllegalArgumentException("no such order: " + order.get("do"));
        }
    }

    Member open(JsonNode order) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", address);
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "earliest");
        settings.put("metadata.max.age.ms", "1000");
        order.get("settings").fields()
            .forEachRemaining(row -> settings.put(row.getKey(), row.getValue().asText()));
        Member member = new Member(settings);
        if (order.has("pattern")) {
            member.consumer.subscribe(new SubscriptionPattern(order.get("pattern").asText()), member);
        } else {
            List<String> topics = new ArrayList<>();
            order.get("topics").forEach(topic -> topics.add(topic.asText()));
            member.consumer.subscribe(topics, member);
        }
        return member;
    }

    ObjectNode poll(Member member, long ms) {
        List<String> values = new ArrayList<>();
        for (ConsumerRecord<String, String> record : member.consumer.poll(Duration.ofMillis(ms))) {
            values.add(record.value());
        }
        ObjectNode told = events(member);
        told.set("values", JSON.valueToTree(values));
        told.set("owned", JSON.valueToTree(names(member.consumer.assignment())));
        told.put("epoch", member.consumer.groupMetadata().generationId());
        return told;
    }

    ObjectNode events(Member member) {
        ObjectNode told = JSON.createObjectNode();
        told.set("events", JSON.valueToTree(new ArrayList<>(member.events)));
        member.events.clear();
        return told;
    }
}
