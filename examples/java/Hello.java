import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicLong;

/** An agent in Java that answers calls over HTTP on port 8000. It needs only the JDK. */
public class Hello {
    public static void main(String[] arguments) throws IOException {
        AtomicLong calls = new AtomicLong();
        HttpServer server = HttpServer.create(new InetSocketAddress("127.0.0.1", 8000), 0);
        server.createContext("/healthz", exchange -> answer(exchange, "{}"));
        server.createContext("/init", exchange -> answer(exchange, "{}"));
        server.createContext("/invoke", exchange -> {
            String event = new String(exchange.getRequestBody().readAllBytes(), StandardCharsets.UTF_8);
            answer(exchange, "{\"event\":" + event + ",\"calls\":" + calls.incrementAndGet() + "}");
        });
        server.start();
    }

    private static void answer(HttpExchange exchange, String json) throws IOException {
        exchange.getRequestBody().readAllBytes();
        byte[] body = json.getBytes(StandardCharsets.UTF_8);
        exchange.getResponseHeaders().add("Content-Type", "application/json");
        exchange.sendResponseHeaders(200, body.length);
        exchange.getResponseBody().write(body);
        exchange.close();
    }
}
