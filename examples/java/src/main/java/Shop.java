import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.cql.Row;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import redis.clients.jedis.RedisClient;

/** A shop: carts and stock by Jedis, orders in a CQL table, a page that reads both by HTTP. */
public final class Shop {
    private static String address(String variable, String otherwise) {
        return System.getenv().getOrDefault(variable, otherwise);
    }

    private static InetSocketAddress socket(String address) {
        String[] parts = address.split(":");
        return new InetSocketAddress(parts[0], Integer.parseInt(parts[1]));
    }

    private static final List<String> SCHEMA = List.of(
        "CREATE KEYSPACE IF NOT EXISTS shop WITH replication = "
            + "{'class': 'SimpleStrategy', 'replication_factor': 1}",
        "CREATE TABLE IF NOT EXISTS shop.orders (id int PRIMARY KEY, customer text, items map<text, int>)",
        "TRUNCATE shop.orders");

    /** Takes the items of a cart out of stock, all or none. A script runs atomically. */
    private static final String TAKE = """
        local cart = redis.call('HGETALL', KEYS[1])
        for i = 1, #cart, 2 do
            local left = tonumber(redis.call('HGET', KEYS[2], cart[i]) or 0)
            if left < tonumber(cart[i + 1]) then return cart[i] end
        end
        for i = 1, #cart, 2 do redis.call('HINCRBY', KEYS[2], cart[i], -cart[i + 1]) end
        return 'ok'""";

    public static void main(String[] arguments) throws Exception {
        InetSocketAddress resp = socket(address("ADDR", "127.0.0.1:6379"));
        InetSocketAddress contact = socket(address("CQL_ADDR", "127.0.0.1:9042"));
        String http = "http://" + address("HTTP_ADDR", "127.0.0.1:8080");
        try (RedisClient redis = RedisClient.create(resp.getHostString(), resp.getPort());
                CqlSession cql = CqlSession.builder()
                    .addContactPoint(contact).withLocalDatacenter("datacenter1").build()) {
            SCHEMA.forEach(cql::execute);
            redis.del("cart:ada", "stock");
            redis.hset("stock", Map.of("tea", "5", "cup", "1"));
            redis.hset("cart:ada", Map.of("tea", "2", "cup", "1"));
            System.out.println("first: " + redis.eval(TAKE, List.of("cart:ada", "stock"), List.of()));
            System.out.println("second: " + redis.eval(TAKE, List.of("cart:ada", "stock"), List.of()));

            // IF NOT EXISTS decides on the server: a repeated request does not order twice.
            String insert = "INSERT INTO shop.orders (id, customer, items) VALUES (?, ?, ?) IF NOT EXISTS";
            Map<String, Integer> items = Map.of("tea", 2, "cup", 1);
            for (int attempt = 0; attempt < 2; attempt++) {
                System.out.println("order stored: " + cql.execute(insert, 1, "ada", items).wasApplied());
            }

            // CQL reads the stock that Jedis wrote, in the order of the fields.
            ByteBuffer key = ByteBuffer.wrap("stock".getBytes(StandardCharsets.UTF_8));
            for (Row row : cql.execute("SELECT field, value FROM redis.hashes WHERE key = ?", key)) {
                System.out.println("CQL: " + text(row, "field") + " " + text(row, "value"));
            }

            HttpRequest page = HttpRequest.newBuilder(URI.create(http + "/hmget/stock/tea/cup")).build();
            System.out.println("HTTP: " + HttpClient.newHttpClient().send(page, BodyHandlers.ofString()).body());
        }
    }

    private static String text(Row row, String column) {
        return StandardCharsets.UTF_8.decode(row.getByteBuffer(column)).toString();
    }
}
