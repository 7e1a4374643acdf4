package rookery

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"
)

// facts are the facts from INIT that are the same for all calls of an instance.
type facts struct {
	initMessage
	state  sync.Map
	logger *slog.Logger
	// nil for an agent that is not durable.
	durable *durable
	// What State returns for an agent that is not durable.
	memory memory
}

// Context describes a call and the instance in which it runs. In the initializer and in pre_stop there is no
// call: the values of a call are empty there.
type Context struct {
	facts *facts
	call  *call

	once        sync.Once
	traceparent string

	// True after the call of a durable agent, or after its initializer. Guarded by the lock of durable.
	isOver bool
}

// nowhere holds the facts of a Context outside an instance, such as in a unit test of a handler.
var nowhere = &facts{logger: newLogger()}

// FromContext returns the Context of a handler, an initializer or a pre_stop function. It accepts the
// function's context.Context and contexts that are derived from that. For any other context it returns a
// Context with empty texts, so that unit tests can call handlers.
func FromContext(ctx context.Context) *Context {
	if found, ok := ctx.Value(contextKey{}).(*Context); ok {
		return found
	}
	return &Context{facts: nowhere}
}

// TraceID returns the id of the request that this call belongs to, in every log.
func (c *Context) TraceID() string { return c.header().TraceID }

// RequestID returns the id of the call.
func (c *Context) RequestID() string { return c.header().RequestID }

// SessionID returns the session that the caller named, or "".
func (c *Context) SessionID() string { return c.header().SessionID }

// Headers returns a copy of the call's headers that the platform does not use itself, with names in lower
// case.
func (c *Context) Headers() map[string]string {
	if headers := c.header().Headers; headers != nil {
		return maps.Clone(headers)
	}
	return map[string]string{}
}

// requestForm matches a request id. Its first digits are the span id, by which the service finds a parent.
var requestForm = regexp.MustCompile(`^([0-9a-f]{8})-([0-9a-f]{4})-([0-9a-f]{4})-`)
var traceparentForm = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-([0-9a-f]{2})`)

// Traceparent returns the W3C trace context: the caller's trace id, or a random one, and a span id of this
// call. Pass it on unchanged.
func (c *Context) Traceparent() string {
	c.once.Do(func() {
		trace, flags := "", "01"
		if parts := traceparentForm.FindStringSubmatch(c.header().Traceparent); parts != nil {
			trace, flags = parts[1], parts[2]
		} else {
			trace = randomHex(16)
		}
		span := ""
		if parts := requestForm.FindStringSubmatch(c.header().RequestID); parts != nil {
			span = parts[1] + parts[2] + parts[3]
		} else {
			span = randomHex(8)
		}
		c.traceparent = "00-" + trace + "-" + span + "-" + flags
	})
	return c.traceparent
}

// Deadline returns the time at which the call ends. The second result is false without a limit, or without a
// call.
func (c *Context) Deadline() (time.Time, bool) {
	if c.call == nil {
		return time.Time{}, false
	}
	return c.call.Deadline()
}

// Remaining returns the time until the call is cancelled, at least 0. The second result is false without a
// limit.
func (c *Context) Remaining() (time.Duration, bool) {
	deadline, bounded := c.Deadline()
	if !bounded {
		return 0, false
	}
	return max(time.Until(deadline), 0), true
}

// Stream returns the call's stream. It fails with ErrNoStream when the caller did not request one.
func (c *Context) Stream() (*Stream, error) {
	if c.call != nil {
		if stream := c.call.openStream(); stream != nil {
			return stream, nil
		}
	}
	return nil, ErrNoStream
}

// InstanceID returns the UUID of the instance.
func (c *Context) InstanceID() string { return c.facts.InstanceID }

// Tenant returns the tenant that owns the instance.
func (c *Context) Tenant() string { return c.facts.Tenant }

// Namespace returns the instance's namespace.
func (c *Context) Namespace() string { return c.facts.Namespace }

// Name returns the instance's name.
func (c *Context) Name() string { return c.facts.Name }

// FunctionName returns the registered function's name, or "" for an agent that was created without a
// function.
func (c *Context) FunctionName() string { return c.facts.FunctionName }

// Version returns the function's version.
func (c *Context) Version() string { return c.facts.Version }

// Package returns the service in the function's name (0@service@function), or the namespace if there is none.
func (c *Context) Package() string {
	if parts := strings.Split(c.facts.FunctionName, "@"); len(parts) == 3 {
		return parts[1]
	}
	return c.facts.Namespace
}

// Handler returns the handler of the function's registration. A program that is registered under several
// names can use it to find out which function to run.
func (c *Context) Handler() string { return c.facts.Handler }

// Initializer returns the initializer of the function's registration, or "".
func (c *Context) Initializer() string { return c.facts.Initializer }

// PreStop returns the pre_stop function of the function's registration, or "".
func (c *Context) PreStop() string { return c.facts.PreStop }

// MemoryMB returns the memory limit of the instance in megabytes.
func (c *Context) MemoryMB() int { return c.facts.MemoryMB }

// CPUMillis returns the CPU share of the instance in thousandths of a core.
func (c *Context) CPUMillis() int { return c.facts.CPUMillis }

// State returns a map that exists as long as the instance. All calls share it. It is never saved: the state
// of a durable agent is that of the function State.
func (c *Context) State() *sync.Map { return &c.facts.state }

// Env returns an environment variable, or "" when it is not set.
func (c *Context) Env(key string) string { return os.Getenv(key) }

// Logger returns a logger that writes to the instance's log (stderr), with the trace id.
func (c *Context) Logger() *slog.Logger {
	if trace := c.TraceID(); trace != "" {
		return c.facts.logger.With("trace_id", trace)
	}
	return c.facts.logger
}

var noHeader = &callHeader{}

func (c *Context) header() *callHeader {
	if c.call == nil {
		return noHeader
	}
	return c.call.parsedHeader()
}

func newLogger() *slog.Logger {
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// logLine writes a message of the runtime to the instance's log, in a single write.
func logLine(text string) {
	os.Stderr.WriteString(text + "\n")
}

func randomHex(bytes int) string {
	random := make([]byte, bytes)
	// Only a broken kernel fails here. A call should not fail for the lack of a span id.
	_, _ = rand.Read(random)
	return hex.EncodeToString(random)
}
