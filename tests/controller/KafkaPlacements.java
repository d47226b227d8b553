import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.admin.AdminUtils;
import org.apache.kafka.admin.BrokerMetadata;

/** Prints Kafka's placements as JSON: for brokers with and without racks, and added partitions. */
public class KafkaPlacements {
    public static void main(String[] arguments) {
        String[] racks = {"-", "a", "ab", "aab", "abc", "aabbc", "abcabc", "aaaab", "abcdefg", "cabba"};
        List<String> rows = new ArrayList<>();
        for (String names : racks) {
            int count = names.equals("-") ? 5 : names.length();
            List<BrokerMetadata> brokers = new ArrayList<>();
            for (int id = 0; id < count; id++) {
                Optional<String> rack =
                    names.equals("-") ? Optional.empty() : Optional.of(names.substring(id, id + 1));
                brokers.add(new BrokerMetadata(id, rack));
            }
            for (int factor = 1; factor <= count; factor++) {
                for (int start = 0; start < count; start += 2) {
                    for (int first : new int[] {0, 1, 4}) {
                        Map<Integer, List<Integer>> placed = AdminUtils.assignReplicasToBrokers(
                            brokers, 2 * count + 1, factor, start, first == 0 ? -1 : first);
                        rows.add(String.format("[\"%s\",%d,%d,%d,%s]", names, factor, start, first,
                            new ArrayList<>(new TreeMap<>(placed).values()).toString().replace(" ", "")));
                    }
                }
            }
        }
        System.out.println("[\n" + String.join(",\n", rows) + "\n]");
    }
}
