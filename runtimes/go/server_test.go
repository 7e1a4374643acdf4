package rookery

// Tests handshakes, calls, cancels and the order of calls over real connections.

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestRefusesConnectionsThatDoNotOpenWithTheSecret(t *testing.T) {
	i := startInstance(t, echo)
	for _, hello := range []struct {
		kind    byte
		message helloMessage
		text    string
	}{
		{frameHello, helloMessage{protocolVersion, "wrong", "c", "data", 0}, "wrong secret"},
		{frameHello, helloMessage{2, testSecret, "c", "data", 0}, "version 1, not 2"},
		{frameHello, helloMessage{protocolVersion, testSecret, "c", "other", 0}, "a role, data or control"},
		{framePing, helloMessage{}, "expected HELLO as the first frame"},
	} {
		w := i.dial()
		w.json(hello.kind, 0, hello.message)
		w.read().expectFailure(t, codeProtocol, hello.text)
		if _, _, _, err := w.conn.readFrame(); err == nil {
			t.Fatal("the connection stays open")
		}
	}
}

func TestClosesAConnectionWithAFrameThatIsTooLong(t *testing.T) {
	i := startInstance(t, echo)
	p := i.connect().ready()
	frame := make([]byte, headerBytes)
	binary.BigEndian.PutUint32(frame, maxFrameBytes+1)
	p.data.conn.conn.Write(frame)
	if _, _, _, err := p.data.conn.readFrame(); err == nil {
		t.Fatal("the connection stays open")
	}
	i.connect().ready()
}

func TestAnswersACallWithTheValueAsJSON(t *testing.T) {
	p := startInstance(t, echo).connect().ready()
	p.call(7, `{"a":[1,"<ü>"]}`)
	got := p.data.read()
	got.expectResult(t, `{"a":[1,"<ü>"]}`)
	if got.callID != 7 {
		t.Fatalf("the answer is for %d", got.callID)
	}
}

func TestErrorsAndPanicsAreFailuresOfTheirCall(t *testing.T) {
	for name, c := range map[string]struct {
		handler Handler
		code    int
		text    string
	}{
		"an error is 4002": {
			func(context.Context, json.RawMessage) (any, error) { return nil, errors.New("boom") },
			codeHandler, "Fail to run user call handler. err: boom."},
		"a panic is 4002": {
			func(context.Context, json.RawMessage) (any, error) { panic("boom") },
			codeHandler, "Fail to run user call handler. err: panic: boom."},
		"an end of the goroutine is 4002": {
			func(context.Context, json.RawMessage) (any, error) { runtime.Goexit(); return nil, nil },
			codeHandler, "runtime.Goexit"},
		"NaN is 4007": {
			func(context.Context, json.RawMessage) (any, error) { return math.NaN(), nil },
			codeNotJSON, "NaN"},
		"a channel is 4007": {
			func(context.Context, json.RawMessage) (any, error) { return make(chan int), nil },
			codeNotJSON, "chan int"},
		"a json.RawMessage that is not JSON is 4007": {
			func(context.Context, json.RawMessage) (any, error) { return json.RawMessage("{"), nil },
			codeNotJSON, "json.RawMessage"},
		"a value of more bytes than allowed is 4004": {
			func(context.Context, json.RawMessage) (any, error) { return strings.Repeat("a", 999), nil },
			codeTooLarge, "response body size 1001 exceeds the limit of 1000"},
		"a sequence of more bytes than allowed is 4004": {
			func(context.Context, json.RawMessage) (any, error) {
				return iter.Seq[any](func(yield func(any) bool) {
					for yield("item") {
					}
				}), nil
			},
			codeTooLarge, "exceeds the limit of 1000"},
	} {
		t.Run(name, func(t *testing.T) {
			p := startInstance(t, func(ctx context.Context, event json.RawMessage) (any, error) {
				if string(event) == "null" {
					return nil, nil
				}
				return c.handler(ctx, event)
			}).connect().ready()
			p.call(1, "{}")
			p.data.read().expectFailure(t, c.code, c.text)
			p.call(2, "null")
			p.data.read().expectResult(t, "null")
		})
	}
}

func TestACallBeforeInitIsAProtocolError(t *testing.T) {
	p := startInstance(t, echo).connect()
	p.call(1, "{}")
	p.data.read().expectFailure(t, codeProtocol, "before INIT")
}

func TestTheOutcomeOfInitIsKept(t *testing.T) {
	runs := make(chan struct{}, 10)
	i := startInstance(t, echo, WithInitializer(func(ctx context.Context) error {
		runs <- struct{}{}
		return errors.New("no database at " + FromContext(ctx).Name())
	}))
	first, second := i.connect(), i.connect()
	for _, got := range []answer{first.init(), second.init()} {
		got.expectFailure(t, codeInitializer, "initializer failed: no database at agent")
	}
	first.call(1, "{}")
	first.data.read().expectFailure(t, codeInitializer, "no database")
	if len(runs) != 1 {
		t.Fatalf("the initializer ran %d times", len(runs))
	}
}

func TestCallsWaitForTheInitializer(t *testing.T) {
	release := make(chan struct{})
	p := startInstance(t, echo, WithInitializer(func(context.Context) error { <-release; return nil })).connect()
	p.data.json(frameInit, 0, initMessage{Handler: "main", Concurrency: 1, MaxResultBytes: 1000})
	p.call(1, "1")
	p.call(2, "2")
	p.until(0, 2)
	close(release)
	if got := p.data.read(); got.kind != frameInitOK {
		t.Fatalf("expected INIT_OK, got type %d", got.kind)
	}
	p.data.read().expectResult(t, "1")
	p.data.read().expectResult(t, "2")
}

func TestAnInitializerThatTakesTooLongIs4211(t *testing.T) {
	ended := make(chan error, 1)
	p := startInstance(t, echo, WithInitializer(func(ctx context.Context) error {
		<-ctx.Done()
		ended <- ctx.Err()
		return nil
	})).connect()
	p.init(func(m *initMessage) { m.InitTimeoutMs = 10 }).expectFailure(t, codeInitializerTimeout, "initializer timed out after 0.01 s")
	if err := receive(t, ended); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
}

func TestAPanicOfTheInitializerIs4201(t *testing.T) {
	p := startInstance(t, echo, WithInitializer(func(context.Context) error { panic("boom") })).connect()
	p.init().expectFailure(t, codeInitializer, "panic: boom")
}

type silentError struct{ text string }

func (e *silentError) Error() string { return e.text }

func TestAnErrorWithoutATextFailsItsHookAndNothingElse(t *testing.T) {
	failing := func(context.Context) error {
		var none *silentError
		return none
	}
	startInstance(t, echo, WithInitializer(failing)).connect().init().expectFailure(t, codeInitializer, "initializer failed: panic")
	i := startInstance(t, echo, WithPreStop(failing))
	p := i.connect().ready()
	p.control.json(frameStop, 0, stopMessage{GraceMs: 10_000})
	if got := p.control.read(); got.kind != frameStopped || !strings.Contains(string(got.payload), "pre_stop failed: panic") {
		t.Fatalf("expected STOPPED with the failure, got type %d %q", got.kind, got.payload)
	}
	if code := receive(t, i.exited); code != 0 {
		t.Fatalf("expected exit code 0, got %d", code)
	}
}

func TestNoHandlerIs4201(t *testing.T) {
	startInstance(t, nil).connect().init().expectFailure(t, codeInitializer, "empty user call code")
	startInstance(t, echo).connect().init(func(m *initMessage) { m.Handler = "" }).expectFailure(t, codeInitializer, "empty user call code")
}

func TestCallsOfAllConnectionsRunOneByOneInTheOrderOfArrival(t *testing.T) {
	begun, release := make(chan string), make(chan struct{})
	i := startInstance(t, func(_ context.Context, event json.RawMessage) (any, error) {
		begun <- string(event)
		<-release
		return nil, nil
	})
	peers := []*peer{i.connect().ready(), i.connect().ready()}
	for n := range 10 {
		peers[n%2].call(uint32(n+1), fmt.Sprint(n))
		if n == 0 {
			if got := receive(t, begun); got != "0" {
				t.Fatal(got)
			}
		}
		peers[0].until(1, n)
	}
	for n := 1; n < 10; n++ {
		release <- struct{}{}
		if got := receive(t, begun); got != fmt.Sprint(n) {
			t.Fatalf("call %s runs in place of %d", got, n)
		}
	}
	close(release)
}

func TestConcurrencyLimitsTheCallsThatRunAtOnce(t *testing.T) {
	begun := make(chan string, 10)
	p := startInstance(t, untilCancelled(begun)).connect().ready(func(m *initMessage) { m.Concurrency = 3 })
	for n := range 5 {
		p.call(uint32(n+1), "{}")
	}
	p.until(3, 2)
	if len(begun) != 3 {
		t.Fatalf("%d calls run", len(begun))
	}
	p.control.json(frameCancel, 1, cancelMessage{reasonTimeout})
	p.data.read().expectFailure(t, codeTimeout, "the call timed out")
	p.until(3, 1)
}

func TestACancelEndsItsCall(t *testing.T) {
	begun := make(chan string, 10)
	p := startInstance(t, untilCancelled(begun)).connect().ready()
	p.call(1, "1")
	receive(t, begun)
	p.control.json(frameCancel, 2, cancelMessage{reasonCaller})
	p.call(2, "2")
	got := p.data.read()
	got.expectFailure(t, codeHandler, "the caller went away")
	if got.callID != 2 {
		t.Fatalf("the call that waits in the kernel is not answered, but %d", got.callID)
	}
	p.call(3, "3")
	p.until(1, 1)
	p.control.json(frameCancel, 3, cancelMessage{reasonTimeout})
	p.data.read().expectFailure(t, codeTimeout, "timed out")
	p.control.json(frameCancel, 1, cancelMessage{reasonInterrupt})
	p.data.read().expectFailure(t, codeHandler, "the call was interrupted")
	p.control.json(frameCancel, 1, cancelMessage{reasonInterrupt})
	p.call(4, "4")
	if got := receive(t, begun); got != "4" {
		t.Fatalf("call %s has run", got)
	}
	p.until(1, 0)
}

func TestTheEndOfADataConnectionCancelsItsCalls(t *testing.T) {
	begun := make(chan string, 10)
	i := startInstance(t, untilCancelled(begun))
	first := i.connect().ready()
	first.call(1, "1")
	first.call(2, "2")
	receive(t, begun)
	first.data.conn.conn.Close()
	first.until(0, 0)
	if len(begun) != 0 {
		t.Fatal("a call ran whose connection had ended")
	}
	second := i.connect().ready()
	second.call(1, "3")
	receive(t, begun)
	third := i.connect().ready()
	third.call(1, "4")
	third.until(1, 1)
	second.data.conn.conn.Close()
	receive(t, begun)
	third.until(1, 0)
}

func TestHandlersKeepStateAndGetTheirContext(t *testing.T) {
	p := startInstance(t, func(ctx context.Context, _ json.RawMessage) (any, error) {
		derived, cancel := context.WithCancel(ctx)
		defer cancel()
		c := FromContext(derived)
		count, _ := c.State().LoadOrStore("count", new(int))
		*count.(*int)++
		_, bounded := c.Remaining()
		_, noStream := c.Stream()
		return []any{*count.(*int), c.TraceID(), c.RequestID(), c.SessionID(), c.Headers(), c.Traceparent()[:36], c.InstanceID(),
			c.Tenant(), c.Namespace(), c.Name(), c.FunctionName(), c.Package(), c.Version(), c.MemoryMB(), c.CPUMillis(),
			bounded, noStream.Error()}, nil
	}).connect().ready()
	for n := range 2 {
		p.call(uint32(n+1), "{}", func(h *callHeader) {
			h.SessionID = "session"
			h.Headers = map[string]string{"x": "y"}
			h.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
		})
		p.data.read().expectResult(t, fmt.Sprintf(`[%d,"trace","request","session",{"x":"y"},`+
			`"00-0af7651916cd43dd8448eb211c80319c-","i","t","n","agent","0@service@f","service","v",128,500,true,%q]`, n+1, ErrNoStream))
	}
}

func TestTheTimeOfACallBeganWhenItWasSent(t *testing.T) {
	remaining := func(ctx context.Context, _ json.RawMessage) (any, error) {
		left, bounded := FromContext(ctx).Remaining()
		deadline, _ := ctx.Deadline()
		return []bool{bounded, left <= 30*time.Second, time.Until(deadline) <= 30*time.Second}, nil
	}
	p := startInstance(t, remaining).connect().ready()
	now, known := monotonicMs()
	if !known {
		t.Skip("this system does not tell")
	}
	halfAMinuteAgo := now - 30_000
	p.call(1, "{}", func(header *callHeader) { header.AtMs = &halfAMinuteAgo })
	p.data.read().expectResult(t, "[true,true,true]")
}

func TestFromContextOutsideOfAnInstanceIsEmpty(t *testing.T) {
	c := FromContext(context.Background())
	if _, bounded := c.Deadline(); bounded || c.TraceID() != "" || len(c.Traceparent()) != 55 {
		t.Fatal("not empty")
	}
}

func TestManyClientsGetTheirOwnAnswers(t *testing.T) {
	i := startInstance(t, echo)
	i.connect().ready(func(m *initMessage) { m.Concurrency = 8 })
	var group sync.WaitGroup
	for range 8 {
		p := i.connect()
		group.Add(1)
		go func() {
			defer group.Done()
			for n := uint32(1); n <= 500; n++ {
				p.call(n, fmt.Sprint(n), func(h *callHeader) { h.Stream = n%3 == 0 })
				p.control.json(frameCancel, n+1_000_000, cancelMessage{reasonCaller})
				if got := p.data.read(); got.callID != n || string(got.payload[4:]) != fmt.Sprint(n) {
					t.Errorf("call %d: got type %d %q", n, got.kind, got.payload)
					return
				}
			}
		}()
	}
	group.Wait()
}
