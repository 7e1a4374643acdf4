package rookery

import (
	"container/list"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	sdkName          = "rookery-runtime-go/0.1.0"
	handshakeTimeout = 10 * time.Second
	maxHandshakes    = 64
	acceptPause      = time.Second
)

type state string

const (
	stateNew          state = "new"
	stateInitializing state = "initializing"
	stateReady        state = "ready"
	stateFailed       state = "failed"
	stateStopping     state = "stopping"
)

// server is one instance: the user's functions, and the connections that call them.
type server struct {
	handler     Handler
	initializer Hook
	preStop     Hook
	alarm       AlarmHandler
	sleep       Hook
	secret      []byte
	exit        func(code int)
	handshakes  chan struct{}

	lock    sync.Mutex
	state   state
	clients map[string]*client
	// Set by INIT, before the state becomes ready.
	facts *facts

	// Number of running calls, at most concurrency, and the calls that wait for a slot in order of arrival.
	running     int
	concurrency int
	queue       list.List

	gone       *gone
	dataNumber int32
	// True if another goroutine reads a data connection while its reader runs a handler.
	readsAhead atomic.Bool

	initialization
	ending
}

// client holds the connections of a control plane.
type client struct {
	data    *connection
	control *connection
}

func newServer(options *options, secret string, exit func(int)) *server {
	s := &server{
		handler:     options.handler,
		initializer: options.initializer,
		preStop:     options.preStop,
		alarm:       options.alarm,
		sleep:       options.sleep,
		secret:      []byte(secret),
		exit:        exit,
		handshakes:  make(chan struct{}, maxHandshakes),
		state:       stateNew,
		clients:     map[string]*client{},
		initialization: initialization{
			initDone: make(chan struct{}),
		},
		ending: ending{
			idle: make(chan struct{}),
		},
	}
	s.readsAhead.Store(true)
	return s
}

// serve accepts connections until the listener is closed.
func (s *server) serve(listener net.Listener) error {
	if watch, err := newGone(); err == nil {
		defer watch.close()
		s.lock.Lock()
		s.gone = watch
		s.lock.Unlock()
		go s.watchEnds(watch)
	}
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			// The user's code has used up all descriptors. Pause before the next accept instead of trying in a loop.
			logLine("rookery: cannot accept a connection: " + err.Error())
			time.Sleep(acceptPause)
			continue
		}
		select {
		case s.handshakes <- struct{}{}:
			go s.greet(conn)
		default:
			conn.Close()
		}
	}
}

// greet performs the handshake of a connection and serves the connection to its end.
func (s *server) greet(conn net.Conn) {
	c, role, err := s.shakeHands(conn)
	<-s.handshakes
	if err != nil {
		conn.Close()
		return
	}
	if role == "data" {
		s.readData(c)
	} else {
		s.readControl(c)
	}
}

func (s *server) shakeHands(conn net.Conn) (*connection, string, error) {
	c, err := newConnection(conn)
	if err != nil {
		return nil, "", err
	}
	if err := conn.SetReadDeadline(time.Now().Add(handshakeTimeout)); err != nil {
		return nil, "", err
	}
	kind, callID, payload, err := c.readFrame()
	if err != nil {
		return nil, "", err
	}
	hello, err := s.checkHello(kind, callID, payload)
	if err == nil {
		err = s.join(c, hello)
	}
	if err != nil {
		c.send(encodeError(0, &errorMessage{Code: codeProtocol, Message: err.Error()}))
		return nil, "", err
	}
	return c, hello.Role, conn.SetReadDeadline(time.Time{})
}

func (s *server) checkHello(kind byte, callID uint32, payload []byte) (*helloMessage, error) {
	if kind != frameHello || callID != 0 {
		return nil, protocolErrorf("expected HELLO as the first frame, got a frame of type %d", kind)
	}
	var hello helloMessage
	if err := readMessage(payload, "HELLO", &hello); err != nil {
		return nil, err
	}
	if subtle.ConstantTimeCompare([]byte(hello.Secret), s.secret) != 1 {
		return nil, protocolError("wrong secret")
	}
	if hello.Version != protocolVersion {
		return nil, protocolErrorf("this runtime speaks protocol version %d, not %d", protocolVersion, hello.Version)
	}
	if hello.Client == "" || (hello.Role != "data" && hello.Role != "control") {
		return nil, protocolError("HELLO needs a client, a text, and a role, data or control")
	}
	return &hello, nil
}

// join assigns the connection to its client and sends HELLO_OK, before any other frame can be sent on it.
func (s *server) join(c *connection, hello *helloMessage) error {
	s.lock.Lock()
	defer s.lock.Unlock()
	peer := s.clients[hello.Client]
	if peer == nil {
		peer = &client{}
	}
	place := &peer.data
	if hello.Role == "control" {
		place = &peer.control
	}
	if *place != nil {
		return protocolErrorf("this client has a %s connection already", hello.Role)
	}
	answer := helloOKMessage{
		Version: protocolVersion,
		Runtime: "go" + strings.TrimPrefix(runtime.Version(), "go"),
		SDK:     sdkName,
		State:   string(s.state),
		Durable: 1,
	}
	if s.facts != nil && s.facts.durable != nil {
		s.facts.durable.describe(&answer)
	}
	if s.state == stateFailed {
		answer.Error = s.failure
	}
	if err := c.send(encodeJSON(frameHelloOK, 0, answer)); err != nil {
		return err
	}
	c.client = hello.Client
	c.takesSpans = hello.Spans != 0
	*place = c
	s.clients[hello.Client] = peer
	if hello.Role == "data" && s.gone != nil {
		s.dataNumber++
		c.number = s.dataNumber
		if err := s.gone.add(c, c.number); err != nil {
			s.stopWatching(err)
		}
	}
	s.decideReading()
	return nil
}

// leave removes a connection from its client. The caller holds the lock.
func (s *server) leave(c *connection) {
	peer := s.clients[c.client]
	if peer == nil {
		return
	}
	switch c {
	case peer.data:
		peer.data = nil
	case peer.control:
		peer.control = nil
	}
	if peer.data == nil && peer.control == nil {
		delete(s.clients, c.client)
	}
	s.decideReading()
}

// readData serves a data connection. If a call has a slot, this goroutine runs it immediately, because
// passing it to another goroutine would add a wake-up to the call.
func (s *server) readData(c *connection) {
	for {
		kind, callID, payload, err := c.readFrame()
		if err == nil {
			switch kind {
			case frameCall:
				var started *call
				if started, err = s.receiveCall(c, callID, payload); started != nil && !s.runWhileReading(c, started) {
					return
				}
			case frameInit:
				err = s.receiveInit(c, payload)
			default:
				err = protocolErrorf("a frame of type %d has no place on a data connection", kind)
			}
		}
		if err != nil {
			s.endData(c, err)
			return
		}
	}
}

// runWhileReading runs a call and returns true if this goroutine is still the reader of its connection.
// Another goroutine starts to read immediately if calls can run in parallel or arrive on several connections.
// Otherwise it starts only when readOn is called.
func (s *server) runWhileReading(c *connection, started *call) bool {
	c.handling.Store(true)
	if s.readsAhead.Load() {
		s.readOn(c)
	}
	ended := false
	defer func() {
		if !ended { // runtime.Goexit in the handler ends this goroutine
			s.readOn(c)
		}
	}()
	s.runCalls(started)
	ended = true
	return c.handling.CompareAndSwap(true, false)
}

// readOn starts another reader for a data connection whose reader runs a handler.
func (s *server) readOn(c *connection) {
	if c.handling.CompareAndSwap(true, false) {
		go s.readData(c)
	}
}

// decideReading updates readsAhead. Called when a condition of it changes. The caller holds the lock.
func (s *server) decideReading() {
	var connections []*connection
	for _, peer := range s.clients {
		if peer.data != nil {
			connections = append(connections, peer.data)
		}
	}
	ahead := s.gone == nil || s.concurrency > 1 || len(connections) > 1 || s.state == stateStopping
	s.readsAhead.Store(ahead)
	if ahead {
		for _, c := range connections {
			s.readOn(c)
		}
	}
}

// watchEnds ends the data connections that their clients have closed.
func (s *server) watchEnds(watch *gone) {
	err := watch.wait(func(number int32) {
		s.lock.Lock()
		var ended *connection
		for _, peer := range s.clients {
			if peer.data != nil && peer.data.number == number {
				ended = peer.data
			}
		}
		s.lock.Unlock()
		if ended != nil {
			s.endData(ended, io.EOF)
		}
	})
	if err != nil {
		s.lock.Lock()
		s.stopWatching(err)
		s.lock.Unlock()
	}
}

// stopWatching disables the watch. Every connection then always has a reader. The caller holds the lock.
func (s *server) stopWatching(err error) {
	logLine("rookery: cannot watch connections: " + err.Error())
	s.gone.close()
	s.gone = nil
	s.decideReading()
}

// receiveCall returns the call if it runs now, otherwise nil.
func (s *server) receiveCall(conn *connection, callID uint32, payload []byte) (*call, error) {
	if len(payload) < 2 || len(payload) < 2+int(binary.BigEndian.Uint16(payload)) {
		return nil, protocolError("a CALL is shorter than its header")
	}
	eventAt := 2 + int(binary.BigEndian.Uint16(payload))
	c := &call{
		conn:      conn,
		id:        callID,
		rawHeader: payload[2:eventAt:eventAt],
		event:     payload[eventAt:],
		arrived:   time.Now(),
	}
	runs, refusal, err := s.admit(c)
	if refusal != nil {
		err = conn.send(encodeError(callID, refusal))
	}
	if !runs {
		return nil, err
	}
	c.current = Context{facts: s.facts, call: c}
	return c, nil
}

// readControl serves a control connection.
func (s *server) readControl(c *connection) {
	for {
		kind, callID, payload, err := c.readFrame()
		if err == nil {
			err = s.receiveControl(c, kind, callID, payload)
		}
		if err != nil {
			s.endControl(c, err)
			return
		}
	}
}

func (s *server) receiveControl(c *connection, kind byte, callID uint32, payload []byte) error {
	switch kind {
	case frameCancel:
		var message cancelMessage
		if err := readMessage(payload, "CANCEL", &message); err != nil {
			return err
		}
		switch message.Reason {
		case reasonTimeout, reasonCaller, reasonInterrupt:
			return s.receiveCancel(c, callID, message.Reason)
		}
		return protocolError("CANCEL needs a reason, timeout, caller or interrupt")
	case frameCredit:
		if len(payload) != 4 {
			return protocolErrorf("CREDIT must have 4 bytes, not %d", len(payload))
		}
		s.receiveCredit(c, callID, binary.BigEndian.Uint32(payload))
		return nil
	case framePing:
		s.lock.Lock()
		pong := pongMessage{Running: s.running, Queued: s.queue.Len()}
		s.lock.Unlock()
		return c.send(encodeJSON(framePong, 0, pong))
	case frameStop:
		var message stopMessage
		if err := readMessage(payload, "STOP", &message); err != nil || message.GraceMs < 0 || message.GraceMs > 1e12 {
			return protocolError("STOP needs graceMs, a number of milliseconds")
		}
		s.stop(c, time.Duration(message.GraceMs)*time.Millisecond)
		return nil
	case frameSaved, frameAlarmList:
		if d := s.durable(); d != nil {
			d.receiveAnswer(c.client, kind, payload)
		}
		return nil
	}
	return protocolErrorf("a frame of type %d has no place on a control connection", kind)
}

// endControl closes and removes a control connection. If its client's data connection is paused, it ends that
// too, because no goroutine would notice that the client has disconnected.
func (s *server) endControl(c *connection, err error) {
	logBroken(err)
	c.conn.Close()
	s.lock.Lock()
	peer := s.clients[c.client]
	s.leave(c)
	s.ending.forget(c)
	var unread *connection
	if peer != nil && peer.data != nil && peer.data.paused {
		unread = peer.data
	}
	s.lock.Unlock()
	if unread != nil {
		s.endData(unread, net.ErrClosed)
	}
}

// endData ends a data connection: it drops the waiting calls and cancels the running ones.
func (s *server) endData(c *connection, err error) {
	logBroken(err)
	c.conn.Close()
	s.lock.Lock()
	if c.ended {
		s.lock.Unlock()
		return
	}
	c.ended = true
	s.leave(c)
	var cancelled []*call
	for id, open := range c.calls {
		if open.running {
			open.reason = reasonCaller
			cancelled = append(cancelled, open)
		} else {
			s.dequeue(open)
			delete(c.calls, id)
		}
	}
	if c.drained != nil {
		c.drained.Broadcast()
	}
	s.lock.Unlock()
	for _, open := range cancelled {
		open.cancel(reasonCaller)
	}
	if d := s.durable(); d != nil {
		d.disconnected(c)
	}
}
