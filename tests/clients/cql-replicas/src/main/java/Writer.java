import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.CqlSessionBuilder;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.ResultSet;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.metadata.Node;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.TreeSet;

/**
 * Writes with the driver's default policy until its input ends. Arguments: the number of remote nodes that the
 * policy may use, and the contact points. Prints a line for each write, each read from the replicas, and the
 * nodes that the driver knows.
 */
public final class Writer {
    private static CqlSession connect(String[] arguments) {
        DriverConfigLoader config = DriverConfigLoader.programmaticBuilder()
            .withString(DefaultDriverOption.LOAD_BALANCING_LOCAL_DATACENTER, "datacenter1")
            .withInt(
                DefaultDriverOption.LOAD_BALANCING_DC_FAILOVER_MAX_NODES_PER_REMOTE_DC,
                Integer.parseInt(arguments[0]))
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, Duration.ofSeconds(5))
            .startProfile("replicas")
            .withString(DefaultDriverOption.LOAD_BALANCING_LOCAL_DATACENTER, "replicas")
            .endProfile()
            .build();
        CqlSessionBuilder builder = CqlSession.builder().withConfigLoader(config);
        for (int at = 1; at < arguments.length; at++) {
            String[] place = arguments[at].split(":");
            builder.addContactPoint(new InetSocketAddress(place[0], Integer.parseInt(place[1])));
        }
        return builder.build();
    }

    private static String host(Node node) {
        return node.getBroadcastRpcAddress().map(address -> address.getAddress().getHostAddress()).orElse("?");
    }

    private static String nodes(CqlSession session) {
        TreeSet<String> nodes = new TreeSet<>();
        for (Node node : session.getMetadata().getNodes().values()) {
            nodes.add(host(node) + "/" + node.getDatacenter() + "/" + node.getState());
        }
        return String.join(" ", nodes);
    }

    public static void main(String[] arguments) throws Exception {
        try (CqlSession session = connect(arguments)) {
            PreparedStatement insert = session.prepare("INSERT INTO ks.t (p, v) VALUES (?, ?)");
            SimpleStatement read =
                SimpleStatement.newInstance("SELECT v FROM ks.t WHERE p = 1").setExecutionProfileName("replicas");
            for (int number = 0; System.in.available() == 0; number++) {
                try {
                    ResultSet result = session.execute(insert.bind(1, number));
                    System.out.println("wrote " + number + " " + host(result.getExecutionInfo().getCoordinator()));
                } catch (Exception error) {
                    System.out.println("failed " + number + " " + error.getMessage().replace('\n', ' '));
                }
                if (number % 10 == 0) {
                    System.out.println("nodes " + nodes(session));
                    try {
                        ResultSet result = session.execute(read);
                        System.out.println("read " + host(result.getExecutionInfo().getCoordinator()));
                    } catch (Exception error) {
                        System.out.println("unread " + error.getMessage().replace('\n', ' '));
                    }
                }
                System.out.flush();
                Thread.sleep(50);
            }
        }
    }
}
