// The SimpleConsumer of Kafka 0.8 to 0.10, behind lines of words divided by tabs:
//
//   read TOPIC PARTITION OFFSET COUNT   -> RECORD... divided by tabs, as of OldConsumer
//   commit GROUP TOPIC PARTITION OFFSET VERSION   -> an empty line
//   committed GROUP TOPIC PARTITION VERSION       -> the offset
//   offsets TOPIC PARTITION TIME                  -> the offsets before the time

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import kafka.api.FetchRequestBuilder;
import kafka.api.PartitionOffsetRequestInfo;
import kafka.common.OffsetAndMetadata;
import kafka.common.TopicAndPartition;
import kafka.javaapi.FetchResponse;
import kafka.javaapi.OffsetCommitRequest;
import kafka.javaapi.OffsetFetchRequest;
import kafka.javaapi.OffsetRequest;
import kafka.javaapi.consumer.SimpleConsumer;
import kafka.message.MessageAndOffset;

public class SimpleReader {
    static final String NAME = "simple";

    public static void main(String[] arguments) throws Exception {
        int colon = arguments[0].lastIndexOf(':');
        SimpleConsumer reader = new SimpleConsumer(
            arguments[0].substring(0, colon), Integer.parseInt(arguments[0].substring(colon + 1)),
            20000, 1 << 16, NAME);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            try {
                System.out.println(obey(reader, line.split("\t")));
            } catch (Exception wrong) {
                System.out.println("error " + wrong);
            }
        }
        reader.close();
    }

    static String obey(SimpleConsumer reader, String[] words) throws Exception {
        switch (words[0]) {
            case "read":
                return read(reader, words[1], Integer.parseInt(words[2]), Long.parseLong(words[3]),
                    Integer.parseInt(words[4]));
            case "commit":
                TopicAndPartition at = new TopicAndPartition(words[2], Integer.parseInt(words[3]));
                Map<TopicAndPartition, OffsetAndMetadata> offsets = new HashMap<>();
                offsets.put(at, committed(Long.parseLong(words[4])));
                Object told = reader.commitOffsets(new OffsetCommitRequest(
                    words[1], offsets, 1, NAME, Short.parseShort(words[5]))).errors().get(at);
                return told.toString().equals("0") ? "" : "error " + told;
            case "committed":
                TopicAndPartition of = new TopicAndPartition(words[2], Integer.parseInt(words[3]));
                return "" + reader.fetchOffsets(new OffsetFetchRequest(
                    words[1], Collections.singletonList(of), Short.parseShort(words[4]), 2, NAME))
                    .offsets().get(of).offset();
            default:
                TopicAndPartition before =
                    new TopicAndPartition(words[1], Integer.parseInt(words[2]));
                Map<TopicAndPartition, PartitionOffsetRequestInfo> asked = new HashMap<>();
                asked.put(before, new PartitionOffsetRequestInfo(Long.parseLong(words[3]), 9));
                StringBuilder found = new StringBuilder();
                for (long offset : reader.getOffsetsBefore(
                        new OffsetRequest(asked, (short) 0, NAME)).offsets(words[1], before.partition())) {
                    found.append(found.length() == 0 ? "" : "\t").append(offset);
                }
                return found.toString();
        }
    }

    static OffsetAndMetadata committed(long offset) {
        return OffsetAndMetadata.apply(offset, "", -1L);
    }

    static String read(SimpleConsumer reader, String topic, int partition, long offset, int count)
            throws Exception {
        StringBuilder found = new StringBuilder();
        long deadline = System.currentTimeMillis() + 20000;
        while (count > 0 && System.currentTimeMillis() < deadline) {
            FetchResponse told = reader.fetch(new FetchRequestBuilder().clientId(NAME)
                .addFetch(topic, partition, offset, 1 << 20).maxWait(500).minBytes(1).build());
            if (told.hasError()) {
                throw new IllegalStateException("error " + told.errorCode(topic, partition));
            }
            for (MessageAndOffset one : told.messageSet(topic, partition)) {
                if (one.offset() >= offset && count-- > 0) {
                    one.message().ensureValid();
                    found.append(found.length() == 0 ? "" : "\t").append(one.offset()).append(":");
                    found.append(text(one.message().key())).append(":");
                    found.append(text(one.message().payload())).append(":-1");
                    offset = one.nextOffset();
                }
            }
        }
        return found.toString();
    }

    static String text(ByteBuffer bytes) {
        if (bytes == null) {
            return "-";
        }
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        return Base64.getEncoder().encodeToString(copy);
    }
}
