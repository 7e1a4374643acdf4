package rookery

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

const testSecret = "a secret"

// patience is the time limit of every wait in the tests. No test depends on how long an operation takes.
const patience = 20 * time.Second

// instance is a server under test.
type instance struct {
	t      *testing.T
	path   string
	exited chan int
}

func startInstance(t *testing.T, handler Handler, settings ...Option) *instance {
	t.Helper()
	i := &instance{t: t, path: filepath.Join(t.TempDir(), "s"), exited: make(chan int, 1)}
	listener, err := listenUnix(i.path)
	if err != nil {
		t.Fatal(err)
	}
	chosen := &options{handler: handler}
	for _, set := range settings {
		set(chosen)
	}
	s := newServer(chosen, testSecret, func(code int) { i.exited <- code })
	served := make(chan struct{})
	go func() {
		defer close(served)
		s.serve(listener)
	}()
	t.Cleanup(func() {
		listener.Close()
		<-served
	})
	return i
}

// wire is a raw connection to the server under test.
type wire struct {
	t    *testing.T
	conn *connection
}

type answer struct {
	kind    byte
	callID  uint32
	payload []byte
}

func (i *instance) dial() *wire {
	i.t.Helper()
	conn, err := net.Dial("unix", i.path)
	if err != nil {
		i.t.Fatal(err)
	}
	i.t.Cleanup(func() { conn.Close() })
	conn.SetReadDeadline(time.Now().Add(patience))
	c, err := newConnection(conn)
	if err != nil {
		i.t.Fatal(err)
	}
	return &wire{i.t, c}
}

func (w *wire) json(kind byte, callID uint32, message any) {
	w.t.Helper()
	if err := w.conn.send(encodeJSON(kind, callID, message)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *wire) read() answer {
	w.t.Helper()
	kind, callID, payload, err := w.conn.readFrame()
	if err != nil {
		w.t.Fatal(err)
	}
	return answer{kind, callID, payload}
}

func (a answer) failure(t *testing.T) errorMessage {
	t.Helper()
	var message errorMessage
	if err := json.Unmarshal(a.payload, &message); err != nil || a.kind != frameError {
		t.Fatalf("expected an ERROR, got type %d %q", a.kind, a.payload)
	}
	return message
}

func (a answer) expectFailure(t *testing.T, code int, text string) {
	t.Helper()
	if got := a.failure(t); got.Code != code || !strings.Contains(got.Message, text) {
		t.Fatalf("expected %d %q, got %d %q", code, text, got.Code, got.Message)
	}
}

func (a answer) expectResult(t *testing.T, value string) {
	t.Helper()
	if a.kind != frameResult || string(a.payload[4:]) != value {
		t.Fatalf("expected the result %s, got type %d %q", value, a.kind, a.payload)
	}
}

// peer is a control plane with its data and control connection.
type peer struct {
	t       *testing.T
	data    *wire
	control *wire
}

var clientNumber struct {
	sync.Mutex
	last int
}

func (i *instance) connect() *peer {
	i.t.Helper()
	clientNumber.Lock()
	clientNumber.last++
	name := fmt.Sprint("client", clientNumber.last)
	clientNumber.Unlock()
	p := &peer{i.t, i.dial(), i.dial()}
	for role, w := range map[string]*wire{"data": p.data, "control": p.control} {
		w.json(frameHello, 0, helloMessage{protocolVersion, testSecret, name, role, 1})
		if got := w.read(); got.kind != frameHelloOK {
			i.t.Fatalf("expected HELLO_OK, got type %d %q", got.kind, got.payload)
		}
	}
	return p
}

func (p *peer) init(change ...func(*initMessage)) answer {
	p.t.Helper()
	message := initMessage{Handler: "main", Concurrency: 1, MaxResultBytes: 1000, InstanceID: "i", Tenant: "t", Namespace: "n",
		Name: "agent", FunctionName: "0@service@f", Version: "v", MemoryMB: 128, CPUMillis: 500, InitTimeoutMs: 60_000}
	for _, c := range change {
		c(&message)
	}
	p.data.json(frameInit, 0, message)
	return p.data.read()
}

func (p *peer) ready(change ...func(*initMessage)) *peer {
	p.t.Helper()
	if got := p.init(change...); got.kind != frameInitOK {
		p.t.Fatalf("expected INIT_OK, got type %d %q", got.kind, got.payload)
	}
	return p
}

func (p *peer) call(callID uint32, event string, change ...func(*callHeader)) {
	p.t.Helper()
	header := callHeader{TraceID: "trace", RequestID: "request", RemainingMs: 60_000}
	for _, c := range change {
		c(&header)
	}
	text, err := json.Marshal(header)
	if err != nil {
		p.t.Fatal(err)
	}
	payload := binary.BigEndian.AppendUint16(nil, uint16(len(text)))
	payload = append(append(payload, text...), event...)
	if err := p.data.conn.send(encodeFrame(frameCall, callID, payload)); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) ping() pongMessage {
	p.t.Helper()
	p.control.conn.send(encodeFrame(framePing, 0, nil))
	var pong pongMessage
	if got := p.control.read(); got.kind != framePong || json.Unmarshal(got.payload, &pong) != nil {
		p.t.Fatalf("expected PONG, got type %d %q", got.kind, got.payload)
	}
	return pong
}

// until pings until the instance reports the given numbers of running and queued calls.
func (p *peer) until(running, queued int) {
	p.t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); runtime.Gosched() {
		if pong := p.ping(); pong.Running == running && pong.Queued == queued {
			return
		}
	}
	p.t.Fatalf("never had %d running and %d queued calls", running, queued)
}

func (p *peer) credit(callID uint32, bytes uint32) {
	p.control.conn.send(encodeFrame(frameCredit, callID, binary.BigEndian.AppendUint32(nil, bytes)))
}

func echo(_ context.Context, event json.RawMessage) (any, error) { return event, nil }

// untilCancelled returns a handler that reports its begin and waits for the end of its context.
func untilCancelled(begun chan<- string) Handler {
	return func(ctx context.Context, event json.RawMessage) (any, error) {
		begun <- string(event)
		<-ctx.Done()
		return nil, ctx.Err()
	}
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case value := <-from:
		return value
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}
