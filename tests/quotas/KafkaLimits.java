// Asks Kafka 4.3.1's ClientQuotaManager which quota counts, for every combination of the 8 levels:
//   java -cp "$HOME/.cache/barnabas/kafka/4.3.1/libs/*" tests/quotas/KafkaLimits.java > tests/quotas/kafka_limits.tsv
// Columns: mask of the levels, user, client id, limit (10 times the level; -: none), the two tags.
import java.net.InetAddress;
import java.util.Optional;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaEntity.ConfigEntity;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.QuotaType;

public class KafkaLimits {
    static final Optional<ConfigEntity> NONE = Optional.empty();
    static final Optional<ConfigEntity> U = Optional.of(new ClientQuotaManager.UserEntity("u"));
    static final Optional<ConfigEntity> ANY_USER = Optional.of(ClientQuotaManager.DEFAULT_USER_ENTITY);
    static final Optional<ConfigEntity> C = Optional.of(new ClientQuotaManager.ClientIdEntity("c"));
    static final Optional<ConfigEntity> ANY_CLIENT = Optional.of(ClientQuotaManager.DEFAULT_USER_CLIENT_ID);
    static final Object[][] LEVELS = {
        {U, C}, {U, ANY_CLIENT}, {U, NONE}, {ANY_USER, C}, {ANY_USER, ANY_CLIENT}, {ANY_USER, NONE},
        {NONE, C}, {NONE, ANY_CLIENT},
    };
    static final String[][] CLIENTS = {{"u", "c"}, {"u", "d"}, {"v", "c"}, {"v", "d"}, {"u", ""}, {"v", ""}};

    @SuppressWarnings("unchecked")
    public static void main(String[] arguments) throws Exception {
        for (int mask = 1; mask < 256; mask++) {
            var metrics = new Metrics();
            var manager = new ClientQuotaManager(
                new ClientQuotaManagerConfig(), metrics, QuotaType.PRODUCE, Time.SYSTEM, "");
            for (int i = 0; i < LEVELS.length; i++)
                if ((mask >> i & 1) == 1)
                    manager.updateQuota(
                        (Optional<ConfigEntity>) LEVELS[i][0], (Optional<ConfigEntity>) LEVELS[i][1],
                        Optional.of(Quota.upperBound(10 * (i + 1))));
            for (var client : CLIENTS) {
                var principal = new KafkaPrincipal("User", client[0]);
                var session = new Session(principal, InetAddress.getLoopbackAddress());
                var tags = manager.getOrCreateQuotaSensors(session, client[1]).metricTags();
                double limit = manager.quota(principal, client[1]).bound();
                System.out.printf("%d\t%s\t%s\t%s\t%s\t%s%n", mask, client[0], client[1],
                    limit > 1e9 ? "-" : String.valueOf((long) limit), tags.get("user"), tags.get("client-id"));
            }
            manager.shutdown();
            metrics.close();
        }
        System.exit(0);
    }
}
