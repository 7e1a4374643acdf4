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

// facts is what is the same for all calls of an instance; from INIT.
type facts struct {
	initMessage
	state  sync.Map
	logger *slog.Logger
}

// Context is what a handler can know about its call and about the instance that it runs in. In the initializer and in
// pre_stop what belongs to a call is empty.
type Context struct {
	facts *facts
	call  *call

	once        sync.Once
	traceparent string
}

// nowhere is the Context of code that runs outside of an instance, such as a unit test of a handler.
var nowhere = &facts{logger: newLogger()}

// FromContext returns the Context of the context that a handler, an initializer or a pre_stop function got, or of one that was
// derived from it. Elsewhere it returns one whose texts are empty, so that handlers can be called in unit tests.
func FromContext(ctx context.Context) *Context {
	if found, ok := ctx.Value(contextKey{}).(*Context); ok {
		return found
	}
	return &Context{facts: nowhere}
}

// TraceID identifies the request that this call belongs to, in every log.
func (c *Context) TraceID() string { return c.header().TraceID }

// RequestID identifies the call.
func (c *Context) RequestID() string { return c.header().RequestID }

// SessionID is the session that the caller named, "" without one.
func (c *Context) SessionID() string { return c.header().SessionID }

// Headers are the call's own headers that the platform does not own, names in lower case.
func (c *Context) Headers() map[string]string {
	if headers := c.header().Headers; headers != nil {
		return maps.Clone(headers)
	}
	return map[string]string{}
}

var traceparentForm = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-([0-9a-f]{2})`)

// Traceparent is the W3C trace context: the caller's trace, a span of this call's own. Pass it on as it is.
func (c *Context) Traceparent() string {
	c.once.Do(func() {
		trace, flags := "", "01"
		if parts := traceparentForm.FindStringSubmatch(c.header().Traceparent); parts != nil {
			trace, flags = parts[1], parts[2]
		} else {
			trace = randomHex(16)
		}
		c.traceparent = "00-" + trace + "-" + randomHex(8) + "-" + flags
	})
	return c.traceparent
}

// Deadline is when the call ends; false without a bound.
func (c *Context) Deadline() (time.Time, bool) {
	if c.call == nil {
		return time.Time{}, false
	}
	return c.call.Deadline()
}

// Remaining is the time until the call is cancelled, at least 0; false without a bound.
func (c *Context) Remaining() (time.Duration, bool) {
	deadline, bounded := c.Deadline()
	if !bounded {
		return 0, false
	}
	return max(time.Until(deadline), 0), true
}

// Stream is the call's stream. Fails with ErrNoStream when the caller does not take one.
func (c *Context) Stream() (*Stream, error) {
	if c.call != nil {
		if stream := c.call.openStream(); stream != nil {
			return stream, nil
		}
	}
	return nil, ErrNoStream
}

// InstanceID is the UUID of the instance.
func (c *Context) InstanceID() string { return c.facts.InstanceID }

// Tenant owns the instance.
func (c *Context) Tenant() string { return c.facts.Tenant }

// Namespace is the instance's namespace.
func (c *Context) Namespace() string { return c.facts.Namespace }

// Name is the instance's name.
func (c *Context) Name() string { return c.facts.Name }

// FunctionName is the registered function's name, "" for an agent that was made without one.
func (c *Context) FunctionName() string { return c.facts.FunctionName }

// Version is the function's version.
func (c *Context) Version() string { return c.facts.Version }

// Package is the service in the function's name (0@service@function), else the namespace.
func (c *Context) Package() string {
	if parts := strings.Split(c.facts.FunctionName, "@"); len(parts) == 3 {
		return parts[1]
	}
	return c.facts.Namespace
}

// Handler is the handler that the function was registered with. A program that is there under several names can tell by
// it which function it is.
func (c *Context) Handler() string { return c.facts.Handler }

// Initializer is the initializer that the function was registered with, "" without one.
func (c *Context) Initializer() string { return c.facts.Initializer }

// PreStop is the pre_stop function that the function was registered with, "" without one.
func (c *Context) PreStop() string { return c.facts.PreStop }

// MemoryMB is the memory that the instance may use, in megabytes.
func (c *Context) MemoryMB() int { return c.facts.MemoryMB }

// CPUMillis is the processor time that the instance may use, in thousandths of a core.
func (c *Context) CPUMillis() int { return c.facts.CPUMillis }

// State is a map that lives as long as the instance; the same one in every call.
func (c *Context) State() *sync.Map { return &c.facts.state }

// Env is a variable of the environment, "" when it is not set.
func (c *Context) Env(key string) string { return os.Getenv(key) }

// Logger writes to the instance's log, with the trace id.
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

// logLine writes a message of the runtime's own into the instance's log, in one write.
func logLine(text string) {
	os.Stderr.WriteString(text + "\n")
}

func randomHex(bytes int) string {
	random := make([]byte, bytes)
	// Only a broken kernel fails here, and a span id is not worth a call.
	_, _ = rand.Read(random)
	return hex.EncodeToString(random)
}
