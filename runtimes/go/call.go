package rookery

import (
	"container/list"
	"context"
	"encoding/json"
	"sync"
	"sync/atomic"
	"time"
)

// Reasons for the cancellation of a call.
const (
	reasonTimeout   = "timeout"
	reasonCaller    = "caller"
	reasonInterrupt = "interrupt"
	reasonStop      = "stop"
)

var reasonTexts = map[string]string{
	reasonTimeout:   "the call timed out",
	reasonCaller:    "the caller went away",
	reasonInterrupt: "the call was interrupted",
	reasonStop:      "the instance is stopping",
}

// work is user code that runs (a call, the initializer, pre_stop), and the context.Context that the code
// gets. This context costs one allocation. The standard library's would cost four and a timer, which is not
// needed: the control plane measures the time and sends a CANCEL at the end.
type work struct {
	current Context
	// Time at which the work ends; zero without a limit. A call computes it on demand instead.
	until time.Time

	lock   sync.Mutex
	done   chan struct{}
	err    error
	afters map[*func()]struct{}
}

var _ context.Context = (*work)(nil)

// contextKey is the key of the Context in a context.Context.
type contextKey struct{}

func (w *work) Deadline() (time.Time, bool) {
	return w.until, !w.until.IsZero()
}

func (w *work) Done() <-chan struct{} {
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.done == nil {
		w.done = make(chan struct{})
		if w.err != nil {
			close(w.done)
		}
	}
	return w.done
}

func (w *work) Err() error {
	w.lock.Lock()
	defer w.lock.Unlock()
	return w.err
}

func (w *work) Value(key any) any {
	if key == (contextKey{}) {
		return &w.current
	}
	return nil
}

// AfterFunc lets package context derive from this context without a goroutine.
func (w *work) AfterFunc(f func()) func() bool {
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.err != nil {
		go f()
		return func() bool { return false }
	}
	if w.afters == nil {
		w.afters = map[*func()]struct{}{}
	}
	w.afters[&f] = struct{}{}
	return func() bool {
		w.lock.Lock()
		defer w.lock.Unlock()
		_, waiting := w.afters[&f]
		delete(w.afters, &f)
		return waiting
	}
}

// end cancels the context. Only the first error counts.
func (w *work) end(err error) {
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.err != nil {
		return
	}
	w.err = err
	if w.done != nil {
		close(w.done)
	}
	for f := range w.afters {
		go (*f)()
	}
	w.afters = nil
}

// call is one CALL, from its arrival to its answer.
type call struct {
	work
	conn    *connection
	id      uint32
	event   json.RawMessage
	arrived time.Time

	rawHeader  []byte
	headerOnce sync.Once
	header     callHeader

	streamOnce sync.Once
	stream     atomic.Pointer[Stream]
	spansOnce  sync.Once
	spans      atomic.Pointer[spanList]

	// Guarded by the server's lock. reason is that of the cancellation, "" while the call is not cancelled.
	running bool
	place   *list.Element
	reason  string
}

// parsedHeader returns the header. It is parsed on first use, since most handlers never read it.
func (c *call) parsedHeader() *callHeader {
	c.headerOnce.Do(func() {
		if err := json.Unmarshal(c.rawHeader, &c.header); err != nil {
			logLine("the header of a call is not as the protocol has it: " + err.Error())
		}
	})
	return &c.header
}

// Deadline implements context.Context. A waiting call is read late, when the call before it has ended, so its
// time limit starts when it was sent.
func (c *call) Deadline() (time.Time, bool) {
	header := c.parsedHeader()
	if header.RemainingMs <= 0 {
		return time.Time{}, false
	}
	began := c.arrived
	if header.AtMs != nil {
		if clock, known := monotonicMs(); known {
			began = time.Now().Add(milliseconds(*header.AtMs - clock))
		}
	}
	return began.Add(milliseconds(header.RemainingMs)), true
}

func milliseconds(count float64) time.Duration {
	return time.Duration(count * float64(time.Millisecond))
}

// openStream returns the call's stream, or nil when its caller did not request one. It creates the stream on
// first use.
func (c *call) openStream() *Stream {
	c.streamOnce.Do(func() {
		if header := c.parsedHeader(); header.Stream {
			c.stream.Store(newStream(c, header.Credit))
		}
	})
	return c.stream.Load()
}

// spanList returns the call's spans, and creates them on first use.
func (c *call) spanList() *spanList {
	c.spansOnce.Do(func() { c.spans.Store(&spanList{}) })
	return c.spans.Load()
}

// cancel ends the context of the call's code. Must be called without the server's lock.
func (c *call) cancel(reason string) {
	if reason == reasonTimeout {
		c.end(context.DeadlineExceeded)
	} else {
		c.end(context.Canceled)
	}
}
