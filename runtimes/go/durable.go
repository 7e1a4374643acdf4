package rookery

// The state of a durable agent: how a change is found and saved, and what a failed call sets back.

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

const (
	defaultMaxStateBytes = 1024 * 1024
	// Up to this size a value is compared after each call, since code may have kept it. Above, only after a call
	// that has used it.
	comparedBytes = 64 * 1024
	// The values of entry in the header of a CALL.
	entryAlarm = "alarm"
	entrySleep = "sleep"
	// Size of the flags and of the length of the alarms, which begin a SAVE.
	saveHeadBytes = 5
)

var (
	errNotDurable  = errors.New(`this agent is not durable: create it with "durable": true`)
	errNotInCall   = errors.New("the initializer runs at each start: save, and set and cancel alarms, in a call")
	errNotAnswered = errors.New("the connection to the service ended before its answer")
)

// Wake describes the last start of a durable agent.
type Wake struct {
	// "created", "call", "alarm", "crash", "reboot" and others.
	Reason string `json:"reason"`
	// Number of starts before this one.
	Count int `json:"count"`
	// Zero if the agent did not sleep.
	SleptAt time.Time `json:"slept_at"`
	// Time of the last save before the start; zero if there was none.
	SavedAt time.Time `json:"saved_at"`
	// Number of saves before the start.
	StateVersion int64 `json:"state_version"`
}

// callError is an error with a code of its own.
type callError struct{ message *errorMessage }

func (e *callError) Error() string { return e.message.Message }

// durable is the state of a durable agent. A changed state is sent in a SAVE frame directly before the RESULT
// of its call.
//
// The server's lock may be held when this lock is acquired, but not the other way round.
type durable struct {
	limit       int
	listsAlarms bool
	wake        Wake
	entries     durableEntries

	lock sync.Mutex
	document
	// The JSON to which a failed call sets the state back; empty: none was saved.
	base []byte
	// The JSON of the value when it was the same as base. The two differ if another program has written base.
	clean []byte
	// True if the running call has used the value.
	isTouched bool
	// True while base is not the saved state, because the initializer has changed it.
	isUnsaved bool
	isWaking  bool
	version   int64
	// Alarms that were set or cancelled since the last save, as JSON by name.
	alarms  map[string]json.RawMessage
	waiting []*answerWait

	awake
}

// answerWait is a wait for a SAVED or an ALARM_LIST. answer gets its payload, or nil if the connection has
// ended.
type answerWait struct {
	conn   *connection
	kind   byte
	answer chan []byte
}

func newDurable(message *durableMessage, dataConnections func() []*connection) *durable {
	d := &durable{
		limit:       message.MaxStateBytes,
		listsAlarms: message.ListsAlarms,
		wake:        message.Wake,
		entries:     message.Entries,
		isWaking:    message.Wake.Reason != "" && message.Wake.Reason != "created",
		version:     message.Version,
		alarms:      map[string]json.RawMessage{},
		awake:       awake{connections: dataConnections},
	}
	if d.limit == 0 {
		d.limit = defaultMaxStateBytes
	}
	if message.State != nil {
		d.base = []byte(*message.State)
	}
	return d
}

// check returns why the saved state cannot be used, or nil.
func (d *durable) check() *errorMessage {
	var members map[string]json.RawMessage
	if err := decodeState(d.base, &members); err != nil {
		return &errorMessage{Code: codeLoad, Message: "the saved state cannot be read: " + err.Error()}
	}
	return nil
}

// openState returns the value of a durable agent's state. The caller holds the lock.
func openState[T any](d *durable, c *Context) (*T, error) {
	if c.isOver {
		return nil, errCallEnded
	}
	if _, ok := d.value.(*T); !ok {
		if d.isTouched {
			return nil, otherType[T](d.value)
		}
		var opened document
		value, err := openDocument[T](&opened, d.base)
		if err != nil {
			return nil, err
		}
		clean, err := encodeState(value)
		if err != nil {
			return nil, &callError{notState(err)}
		}
		d.document, d.clean = opened, clean
	}
	d.isTouched = true
	return d.value.(*T), nil
}

// stateChange is a changed state that was not sent yet.
type stateChange struct {
	text []byte
	// False: only alarms have changed, or the initializer's change is not saved yet.
	isOfValue bool
}

// begin ends the initialization: a failed call sets the state back to what it is now.
func (d *durable) begin(initializer *Context) *errorMessage {
	d.lock.Lock()
	defer d.lock.Unlock()
	initializer.isOver = true
	changed, failure := d.change()
	if changed != nil {
		d.agree(changed)
		d.isUnsaved = true
	}
	d.isTouched = false
	return failure
}

// settle ends a call. It returns the SAVE of what a successful call has changed, or nil, and why the call
// failed. The changes of a failed call are undone.
func (d *durable) settle(c *call, failure *errorMessage) (frame []byte, why *errorMessage) {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.isWaking = false
	c.current.isOver = true
	if failure == nil {
		var changed *stateChange
		if changed, failure = d.change(); changed != nil {
			frame = d.commit(c.id, changed)
		}
	}
	if failure != nil {
		d.rollBack()
	}
	d.isTouched = false
	return frame, failure
}

// change returns what has to be saved, or nil. The caller holds the lock.
func (d *durable) change() (*stateChange, *errorMessage) {
	text, err := d.changedText()
	if err != nil {
		return nil, notState(err)
	}
	changed := &stateChange{text, text != nil}
	if !changed.isOfValue {
		if !d.isUnsaved && len(d.alarms) == 0 {
			return nil, nil
		}
		changed.text = d.base
		if len(d.base) == 0 {
			changed.text = []byte("{}")
		}
	}
	if size := len(changed.text); size > d.limit {
		return nil, &errorMessage{Code: codeTooLarge, Message: fmt.Sprintf(
			"context.state has %d bytes, more than the limit of %d", size, d.limit)}
	}
	return changed, nil
}

// changedText returns the JSON of the value if code has changed it, otherwise nil. The caller holds the lock.
func (d *durable) changedText() ([]byte, error) {
	if d.value == nil || (!d.isTouched && len(d.clean) > comparedBytes) {
		return nil, nil
	}
	now, err := encodeState(d.value)
	if err != nil || bytes.Equal(now, d.clean) {
		return nil, err
	}
	return now, nil
}

// rollBack sets the state back to its last saved form. The caller holds the lock.
func (d *durable) rollBack() {
	if now, err := d.changedText(); err != nil || now != nil {
		if err := d.reset(d.base); err != nil {
			d.document = document{}
		}
	}
	clear(d.alarms)
}

// agree makes the change the state to which a failed call is set back. The caller holds the lock.
func (d *durable) agree(changed *stateChange) {
	d.base = changed.text
	if changed.isOfValue {
		d.clean = changed.text
	}
	d.isUnsaved = false
}

// commit agrees on a change and returns its SAVE. Call id 0: it belongs to no answer. The caller holds the
// lock.
func (d *durable) commit(callID uint32, changed *stateChange) []byte {
	d.agree(changed)
	d.version++
	var alarms []byte
	if len(d.alarms) > 0 {
		alarms = d.alarmChanges()
		clear(d.alarms)
	}
	frame := make([]byte, headerBytes+saveHeadBytes, headerBytes+saveHeadBytes+len(alarms)+len(changed.text))
	binary.BigEndian.PutUint32(frame[headerBytes+1:], uint32(len(alarms)))
	frame = append(append(frame, alarms...), changed.text...)
	putHeader(frame, frameSave, callID)
	return frame
}

// save sends a SAVE of what has changed, and returns the wait for its SAVED; nil: nothing has changed.
func (d *durable) save(c *call) (*answerWait, error) {
	d.lock.Lock()
	defer d.lock.Unlock()
	if err := c.mayUseState(); err != nil {
		return nil, err
	}
	changed, failure := d.change()
	if failure != nil {
		return nil, &callError{failure}
	}
	if changed == nil {
		return nil, nil
	}
	return d.send(c.conn, d.commit(0, changed), frameSaved)
}

// send sends a request, and returns the wait for its answer, a frame of this kind. The caller holds the lock.
func (d *durable) send(conn *connection, request []byte, kind byte) (*answerWait, error) {
	wait := &answerWait{conn, kind, make(chan []byte, 1)}
	d.waiting = append(d.waiting, wait)
	if err := conn.send(request); err != nil {
		return nil, errNotAnswered
	}
	return wait, nil
}

// receiveAnswer handles a SAVED or an ALARM_LIST of a client.
func (d *durable) receiveAnswer(client string, kind byte, payload []byte) {
	d.lock.Lock()
	defer d.lock.Unlock()
	for i, wait := range d.waiting {
		if wait.conn.client == client && wait.kind == kind {
			d.waiting = slices.Delete(d.waiting, i, i+1)
			wait.answer <- payload
			return
		}
	}
}

// disconnected ends the waits for answers on a data connection that has ended.
func (d *durable) disconnected(conn *connection) {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.waiting = slices.DeleteFunc(d.waiting, func(wait *answerWait) bool {
		if wait.conn == conn {
			wait.answer <- nil
		}
		return wait.conn == conn
	})
}

// receive returns the payload of the answer. It fails if the connection or the call ends before.
func (w *answerWait) receive(c *call) ([]byte, error) {
	select {
	case payload := <-w.answer:
		if payload == nil {
			return nil, errNotAnswered
		}
		return payload, nil
	case <-c.Done():
		return nil, c.Err()
	}
}

// mayUseState returns why the call can no longer save, or nil. The caller holds the lock of durable.
func (c *call) mayUseState() error {
	if c.current.isOver {
		return errCallEnded
	}
	return c.Err()
}

// describe adds the number of saves and the time of KeepAwake to a greeting.
func (d *durable) describe(answer *helloOKMessage) {
	answer.KeepAwakeSeconds = d.keptSeconds()
	d.lock.Lock()
	defer d.lock.Unlock()
	version := d.version
	answer.StateVersion = &version
}

func notState(err error) *errorMessage {
	return &errorMessage{Code: codeNotJSON, Message: "context.state cannot be turned into JSON: " + err.Error()}
}

// durable returns the state of a durable agent; nil before INIT, and for another agent.
func (s *server) durable() *durable {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.facts == nil {
		return nil
	}
	return s.facts.durable
}

// dataConnections returns the open data connections.
func (s *server) dataConnections() []*connection {
	s.lock.Lock()
	defer s.lock.Unlock()
	var connections []*connection
	for _, peer := range s.clients {
		if peer.data != nil {
			connections = append(connections, peer.data)
		}
	}
	return connections
}

// Save saves the state and the alarms now, and returns when they are on disk. What it has saved stays if the
// call fails later. Without a change it does nothing. It fails with the context's error when the call was
// cancelled.
func (c *Context) Save() error {
	d := c.facts.durable
	if d == nil {
		return errNotDurable
	}
	if c.call == nil {
		return errNotInCall
	}
	wait, err := d.save(c.call)
	if wait == nil {
		return err
	}
	_, err = wait.receive(c.call)
	return err
}

// IsWaking returns true in the initializer and in the first call after a start with a saved state.
func (c *Context) IsWaking() bool {
	d := c.facts.durable
	if d == nil {
		return false
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	return d.isWaking
}

// Wake describes the last start of a durable agent. For another agent it is empty.
func (c *Context) Wake() Wake {
	if d := c.facts.durable; d != nil {
		return d.wake
	}
	return Wake{}
}
