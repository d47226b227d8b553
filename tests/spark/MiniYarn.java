import java.io.FileOutputStream;
import java.io.OutputStream;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;
import org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler;

/** MiniYarn FILE: a resource manager and a node manager, until the input ends; FILE: what clients
 * need to know of them. */
public final class MiniYarn {
    private static final int NODE_WAIT_MS = 60_000;

    public static void main(String[] words) throws Exception {
        YarnConfiguration conf = new YarnConfiguration();
        conf.setClass(
                YarnConfiguration.RM_SCHEDULER,
                FifoScheduler.class,
                org.apache.hadoop.yarn.server.resourcemanager.scheduler.ResourceScheduler.class);
        conf.setInt(YarnConfiguration.RM_SCHEDULER_MINIMUM_ALLOCATION_MB, 128);
        // A JVM has far more addresses than memory, and a test's disk may be nearly full.
        conf.setBoolean(YarnConfiguration.NM_VMEM_CHECK_ENABLED, false);
        conf.setBoolean(YarnConfiguration.NM_PMEM_CHECK_ENABLED, false);
        conf.setBoolean(YarnConfiguration.NM_DISK_HEALTH_CHECK_ENABLE, false);
        MiniYARNCluster cluster = new MiniYARNCluster("yarn", 1, 1, 1);
        cluster.init(conf);
        cluster.start();
        if (!cluster.waitForNodeManagersToConnect(NODE_WAIT_MS)) {
            throw new IllegalStateException("the node manager did not come");
        }
        try (OutputStream out = new FileOutputStream(words[0])) {
            cluster.getConfig().writeXml(out);
        }
        System.out.println("ready");
        while (System.in.read() >= 0) {
            continue;
        }
        System.exit(0);
    }
}
