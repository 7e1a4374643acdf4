package dev.rookery.runtime;

import dev.rookery.AlarmTime;
import dev.rookery.Context;
import dev.rookery.KeptAwake;
import dev.rookery.Logger;
import dev.rookery.Span;
import dev.rookery.Stream;
import dev.rookery.Wake;
import java.security.SecureRandom;
import java.time.Duration;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentMap;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** The {@link Context} of a call or a hook. Values are computed on access. */
final class CallContext implements Context {
    /** Matches a request id. Its first digits are the span id, by which the service finds a parent. */
    private static final Pattern REQUEST = Pattern.compile("^([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-.*");
    private static final Pattern TRACEPARENT =
            Pattern.compile("^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-([0-9a-f]{2}).*");
    private static final SecureRandom RANDOM = new SecureRandom();
    private static final Protocol.CallHeader NO_HEADER = new Protocol.CallHeader();

    private final Facts facts;
    /** The call; null in the initializer and in pre_stop. */
    private final Call call;
    /** Time limit of the initializer or pre_stop, as {@link System#nanoTime}; null without a limit. */
    private final Long endNanos;
    private String traceparent;

    CallContext(Facts facts, Call call, Long endNanos) {
        this.facts = facts;
        this.call = call;
        this.endNanos = endNanos;
    }

    @Override
    public String getTraceID() {
        return text(header().traceId);
    }

    @Override
    public synchronized String getTraceparent() {
        if (traceparent == null) {
            Matcher matcher = TRACEPARENT.matcher(text(header().traceparent));
            boolean known = matcher.matches();
            Matcher id = REQUEST.matcher(text(header().requestId));
            String span = id.matches() ? id.group(1) + id.group(2) + id.group(3) : randomHex(8);
            traceparent = "00-" + (known ? matcher.group(1) : randomHex(16)) + "-" + span + "-"
                    + (known ? matcher.group(2) : "01");
        }
        return traceparent;
    }

    @Override
    public String getRequestID() {
        return text(header().requestId);
    }

    @Override
    public String getSessionID() {
        return text(header().sessionId);
    }

    @Override
    public Map<String, String> getHeaders() {
        Map<String, String> headers = header().headers;
        return headers == null ? Collections.emptyMap() : Collections.unmodifiableMap(headers);
    }

    @Override
    public long getDeadlineMillis() {
        Long end = end();
        return end == null
                ? Long.MAX_VALUE
                : System.currentTimeMillis() + (end - System.nanoTime()) / 1_000_000;
    }

    @Override
    public long getRemainingTimeInMilliSeconds() {
        Long end = end();
        return end == null ? Long.MAX_VALUE : Math.max(0, (end - System.nanoTime()) / 1_000_000);
    }

    @Override
    public Stream getStream() {
        Stream stream = call == null ? null : call.stream();
        if (stream == null) {
            throw new IllegalStateException("there is no stream: the caller did not ask for text/event-stream");
        }
        return stream;
    }

    @Override
    public Span span(String name) {
        return call == null ? Spans.NONE : call.spans().start(name);
    }

    @Override
    public String getInstanceID() {
        return text(facts.init.instanceId);
    }

    @Override
    public String getTenantID() {
        return text(facts.init.tenant);
    }

    @Override
    public String getNamespace() {
        return text(facts.init.namespace);
    }

    @Override
    public String getName() {
        return text(facts.init.name);
    }

    @Override
    public String getFunctionName() {
        return text(facts.init.functionName);
    }

    @Override
    public String getVersion() {
        return text(facts.init.version);
    }

    @Override
    public String getPackage() {
        String[] parts = getFunctionName().split("@", -1);
        return parts.length == 3 ? parts[1] : getNamespace();
    }

    @Override
    public int getMemorySize() {
        return facts.init.memoryMb;
    }

    @Override
    public int getCPUNumber() {
        return facts.init.cpuMillis;
    }

    @Override
    public String getUserData(String key) {
        return System.getenv(key);
    }

    @Override
    public ConcurrentMap<String, Object> getState() {
        return facts.state;
    }

    @Override
    public <T> T state(Class<T> type) {
        return facts.durable == null ? facts.memory(type) : facts.durable.get(type, call);
    }

    @Override
    public void putState(Object state) {
        if (facts.durable == null) {
            facts.putMemory(state);
        } else {
            facts.durable.put(state, call);
        }
    }

    @Override
    public void save() throws InterruptedException {
        durable().save(call);
    }

    @Override
    public void setAlarm(String name, AlarmTime when, Object payload) {
        durable().setAlarm(name, when, payload, call);
    }

    @Override
    public void cancelAlarm(String name) {
        durable().cancelAlarm(name, call);
    }

    @Override
    public List<Map<String, Object>> alarms() throws InterruptedException {
        return durable().listAlarms(call);
    }

    @Override
    public KeptAwake keepAwake(Duration limit) {
        return durable().awake.keep(limit);
    }

    @Override
    public boolean isWaking() {
        return facts.durable != null && facts.durable.isWaking();
    }

    @Override
    public Wake getWake() {
        return facts.durable == null ? null : facts.durable.wake;
    }

    private Durable durable() {
        if (facts.durable == null) {
            throw new IllegalStateException("this agent is not durable: create it with \"durable\": true");
        }
        return facts.durable;
    }

    @Override
    public Logger getLogger() {
        return Log.withTrace(getTraceID());
    }

    private Protocol.CallHeader header() {
        return call == null ? NO_HEADER : call.header();
    }

    private Long end() {
        return call == null ? endNanos : call.endNanos();
    }

    private static String text(String value) {
        return value == null ? "" : value;
    }

    private static String randomHex(int bytes) {
        byte[] random = new byte[bytes];
        RANDOM.nextBytes(random);
        StringBuilder text = new StringBuilder();
        for (byte value : random) {
            text.append(Character.forDigit(value >> 4 & 15, 16)).append(Character.forDigit(value & 15, 16));
        }
        return text.toString();
    }
}
