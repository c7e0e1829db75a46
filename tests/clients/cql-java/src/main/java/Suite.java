import com.datastax.oss.driver.api.core.AllNodesFailedException;
import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.DefaultProtocolVersion;
import com.datastax.oss.driver.api.core.ProtocolVersion;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import com.datastax.oss.driver.api.core.cql.AsyncResultSet;
import com.datastax.oss.driver.api.core.cql.BatchStatement;
import com.datastax.oss.driver.api.core.cql.BatchStatementBuilder;
import com.datastax.oss.driver.api.core.cql.DefaultBatchType;
import com.datastax.oss.driver.api.core.cql.PreparedStatement;
import com.datastax.oss.driver.api.core.cql.Row;
import com.datastax.oss.driver.api.core.cql.SimpleStatement;
import com.datastax.oss.driver.api.core.data.CqlDuration;
import com.datastax.oss.driver.api.core.data.TupleValue;
import com.datastax.oss.driver.api.core.data.UdtValue;
import com.datastax.oss.driver.api.core.metadata.schema.TableMetadata;
import com.datastax.oss.driver.api.core.servererrors.AlreadyExistsException;
import com.datastax.oss.driver.api.core.servererrors.InvalidQueryException;
import com.datastax.oss.driver.api.core.servererrors.SyntaxError;
import com.datastax.oss.driver.api.core.type.TupleType;
import com.datastax.oss.driver.api.core.type.UserDefinedType;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.net.InetSocketAddress;
import java.nio.ByteBuffer;
import java.time.Duration;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalTime;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletionStage;

/** Cassandra's Java driver against CQL_ADDR: every test runs over versions 4 and 5. */
public final class Suite {
    private static final String KEYSPACE = "java_suite";
    private static final int PAGED_ROWS = 5_000;
    private static final int RACERS = 16;
    /** A busy machine may halt the server or this process for longer than the seconds of the defaults. */
    private static final Duration PATIENCE = Duration.ofMinutes(1);

    private interface Body {
        void run(CqlSession session) throws Exception;
    }

    private static CqlSession connect(ProtocolVersion version, String keyspace) {
        String[] address = System.getenv("CQL_ADDR").split(":");
        DriverConfigLoader config = DriverConfigLoader.programmaticBuilder()
            .withString(DefaultDriverOption.PROTOCOL_VERSION, version.toString())
            .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, PATIENCE)
            .withDuration(DefaultDriverOption.CONNECTION_CONNECT_TIMEOUT, PATIENCE)
            .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, PATIENCE)
            .withDuration(DefaultDriverOption.CONNECTION_SET_KEYSPACE_TIMEOUT, PATIENCE)
            .withDuration(DefaultDriverOption.CONTROL_CONNECTION_TIMEOUT, PATIENCE)
            .withDuration(DefaultDriverOption.CONTROL_CONNECTION_AGREEMENT_TIMEOUT, PATIENCE)
            .withDuration(DefaultDriverOption.METADATA_SCHEMA_REQUEST_TIMEOUT, PATIENCE)
            .withDuration(DefaultDriverOption.HEARTBEAT_TIMEOUT, PATIENCE)
            .withDuration(DefaultDriverOption.REPREPARE_TIMEOUT, PATIENCE)
            .build();
        return CqlSession.builder()
            .addContactPoint(new InetSocketAddress(address[0], Integer.parseInt(address[1])))
            .withLocalDatacenter("datacenter1")
            .withConfigLoader(config)
            .withKeyspace(keyspace)
            .build();
    }

    private static void equal(Object got, Object wanted) {
        if (!Objects.deepEquals(got, wanted)) {
            throw new AssertionError("got " + got + ", wanted " + wanted);
        }
    }

    private static void refused(Class<? extends Exception> kind, String text, Runnable call) {
        try {
            call.run();
        } catch (Exception error) {
            if (kind.isInstance(error) && String.valueOf(error.getMessage()).contains(text)) {
                return;
            }
            throw new AssertionError("refused otherwise than with " + kind + " " + text, error);
        }
        throw new AssertionError("no error, wanted " + text);
    }

    private static void everyType(CqlSession session) throws Exception {
        session.execute("CREATE TYPE point (x int, y int)");
        Map<String, Object> values = new LinkedHashMap<>();
        values.put("ascii", "plain");
        values.put("bigint", Long.MIN_VALUE);
        values.put("blob", ByteBuffer.wrap(new byte[] {0, -1}));
        values.put("boolean", true);
        values.put("date", LocalDate.of(1969, 12, 31));
        values.put("decimal", new BigDecimal("-123456789.123456789"));
        values.put("double", 1e-300);
        values.put("duration", CqlDuration.newInstance(1, 2, 3));
        values.put("float", 0.5f);
        values.put("inet", java.net.InetAddress.getByName("2001:db8::1"));
        values.put("int", Integer.MIN_VALUE);
        values.put("smallint", Short.MIN_VALUE);
        values.put("text", "grüße 万");
        values.put("time", LocalTime.of(23, 59, 59, 999_999_999));
        values.put("timestamp", Instant.ofEpochMilli(1582979696789L));
        values.put("timeuuid", UUID.fromString("50554d6e-29bb-11e5-b345-feff819cdc9f"));
        values.put("tinyint", Byte.MIN_VALUE);
        values.put("uuid", UUID.fromString("123e4567-e89b-12d3-a456-426614174000"));
        values.put("varint", BigInteger.TEN.pow(40).negate());
        values.put("list<int>", List.of(3, 1, 2));
        values.put("set<text>", Set.of("a", "b"));
        values.put("map<text, int>", Map.of("x", 1));
        StringBuilder columns = new StringBuilder();
        List<String> names = new ArrayList<>();
        for (String type : values.keySet()) {
            String name = "c" + names.size();
            names.add(name);
            columns.append(", ").append(name).append(' ').append(type);
        }
        session.execute("CREATE TABLE every_type (k int PRIMARY KEY" + columns
            + ", t tuple<int, text>, u frozen<point>)");
        String list = String.join(", ", names);
        PreparedStatement insert = session.prepare("INSERT INTO every_type (k, t, u, " + list
            + ") VALUES (1, ?, ?" + ", ?".repeat(names.size()) + ")");
        TupleValue tuple = ((TupleType) insert.getVariableDefinitions().get(0).getType()).newValue(7, "seven");
        UdtValue point = ((UserDefinedType) insert.getVariableDefinitions().get(1).getType()).newValue(1, 2);
        List<Object> bound = new ArrayList<>(List.of(tuple, point));
        bound.addAll(values.values());
        session.execute(insert.bind(bound.toArray()));
        Row row = session.execute("SELECT t, u, " + list + " FROM every_type").one();
        equal(row.getTupleValue(0), tuple);
        equal(row.getUdtValue(1), point);
        int at = 2;
        for (Map.Entry<String, Object> entry : values.entrySet()) {
            equal(row.getObject(at++), entry.getValue());
        }
    }

    private static void pages(CqlSession session) throws Exception {
        session.execute("CREATE TABLE paged (p int, c int, PRIMARY KEY (p, c))");
        PreparedStatement insert = session.prepare("INSERT INTO paged (p, c) VALUES (1, ?)");
        List<CompletionStage<AsyncResultSet>> writes = new ArrayList<>();
        for (int c = 0; c < PAGED_ROWS; c++) {
            writes.add(session.executeAsync(insert.bind(c)));
            if (writes.size() == 500) {
                for (CompletionStage<AsyncResultSet> write : writes) {
                    write.toCompletableFuture().get();
                }
                writes.clear();
            }
        }
        int count = 0;
        SimpleStatement select = SimpleStatement.newInstance("SELECT c FROM paged WHERE p = 1").setPageSize(77);
        for (Row row : session.execute(select)) {
            equal(row.getInt(0), count++);
        }
        equal(count, PAGED_ROWS);
    }

    private static void batchesAndCounters(CqlSession session) {
        session.execute("CREATE TABLE b (k int PRIMARY KEY, v int)");
        PreparedStatement insert = session.prepare("INSERT INTO b (k, v) VALUES (?, ?)");
        BatchStatementBuilder batch = BatchStatement.builder(DefaultBatchType.LOGGED);
        for (int k = 0; k < 100; k++) {
            batch.addStatement(insert.bind(k, k));
        }
        session.execute(batch.build());
        equal(session.execute("SELECT count(*) FROM b").one().getLong(0), 100L);
        session.execute("CREATE TABLE c (k int PRIMARY KEY, n counter)");
        session.execute("UPDATE c SET n = n + 5 WHERE k = 1");
        session.execute("UPDATE c SET n = n - 2 WHERE k = 1");
        equal(session.execute("SELECT n FROM c").one().getLong(0), 3L);
    }

    private static void oneWinner(CqlSession session) throws Exception {
        session.execute("CREATE TABLE race (k int PRIMARY KEY, winner int)");
        PreparedStatement claim = session.prepare("INSERT INTO race (k, winner) VALUES (1, ?) IF NOT EXISTS");
        List<CompletionStage<AsyncResultSet>> claims = new ArrayList<>();
        for (int racer = 0; racer < RACERS; racer++) {
            claims.add(session.executeAsync(claim.bind(racer)));
        }
        int winners = 0;
        for (CompletionStage<AsyncResultSet> result : claims) {
            winners += result.toCompletableFuture().get().wasApplied() ? 1 : 0;
        }
        equal(winners, 1);
    }

    private static void errorsHaveTheirKinds(CqlSession session) {
        session.execute("CREATE TABLE e (k int PRIMARY KEY)");
        refused(InvalidQueryException.class, "nope", () -> session.execute("SELECT * FROM nope"));
        refused(SyntaxError.class, "line 1", () -> session.execute("SELEC 1"));
        refused(AlreadyExistsException.class, "e", () -> session.execute("CREATE TABLE e (k int PRIMARY KEY)"));
    }

    private static void theSchemaIsSeen(CqlSession session) throws Exception {
        session.execute("CREATE TABLE seen (a int, b text, c timeuuid, v map<text, int>, "
            + "PRIMARY KEY ((a, b), c)) WITH CLUSTERING ORDER BY (c DESC)");
        TableMetadata table = session.refreshSchema().getKeyspace(KEYSPACE).get().getTable("seen").get();
        equal(table.getPartitionKey().size(), 2);
        equal(table.getClusteringColumns().values().iterator().next().name(), "DESC");
        equal(table.getColumn("v").get().getType().asCql(true, false), "map<text, int>");
        session.execute("ALTER TABLE seen ADD w int");
        equal(session.refreshSchema().getKeyspace(KEYSPACE).get().getTable("seen").get().getColumn("w").isPresent(), true);
    }

    private static boolean attempt(String name, ProtocolVersion version, Body body) {
        try (CqlSession admin = connect(version, null)) {
            admin.execute("DROP KEYSPACE IF EXISTS " + KEYSPACE);
            admin.execute("CREATE KEYSPACE " + KEYSPACE
                + " WITH replication = {'class': 'SimpleStrategy', 'replication_factor': 1}");
            try (CqlSession session = connect(version, KEYSPACE)) {
                body.run(session);
            }
        } catch (Exception | AssertionError error) {
            System.out.println("FAILED " + name + " " + version);
            error.printStackTrace(System.out);
            if (error instanceof AllNodesFailedException all) {
                System.out.println(all.getAllErrors());
            }
            return false;
        }
        System.out.println("ok " + name + " " + version);
        return true;
    }

    public static void main(String[] arguments) {
        Map<String, Body> tests = new LinkedHashMap<>();
        tests.put("everyType", Suite::everyType);
        tests.put("pages", Suite::pages);
        tests.put("batchesAndCounters", Suite::batchesAndCounters);
        tests.put("oneWinner", Suite::oneWinner);
        tests.put("errorsHaveTheirKinds", Suite::errorsHaveTheirKinds);
        tests.put("theSchemaIsSeen", Suite::theSchemaIsSeen);
        int passed = 0;
        int failed = 0;
        for (ProtocolVersion version : List.of(DefaultProtocolVersion.V4, DefaultProtocolVersion.V5)) {
            for (Map.Entry<String, Body> test : tests.entrySet()) {
                if (attempt(test.getKey(), version, test.getValue())) {
                    passed++;
                } else {
                    failed++;
                }
            }
        }
        System.out.println(passed + " passed, " + failed + " failed");
        System.exit(failed == 0 ? 0 : 1);
    }
}
