package rookery

// Runs handlers and hooks, and answers their calls.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"runtime/debug"
	"time"
)

var errGoexit = errors.New("it ended its goroutine (runtime.Goexit)")

// outcome is the result of user code: a RESULT frame whose header is not filled in, or a failure.
type outcome struct {
	frame   []byte
	failure *errorMessage
}

// runCalls runs a call that holds a slot, and then waiting calls in the same slot until none is left.
func (s *server) runCalls(c *call) {
	for c != nil {
		c = s.runCall(c)
	}
}

func (s *server) runCall(c *call) (next *call) {
	started := time.Now()
	var result outcome
	finished := false
	// runtime.Goexit in the handler ends this goroutine too. The deferred function then gives the answer.
	defer func() {
		if !finished {
			result.failure = handlerFailure(errGoexit.Error())
			go s.runCalls(s.finish(c, result, started))
		}
	}()
	result = s.execute(c)
	finished = true
	return s.finish(c, result, started)
}

// execute runs the handler and converts its value to JSON.
func (s *server) execute(c *call) (result outcome) {
	defer func() {
		if cause := recover(); cause != nil {
			result = outcome{failure: handlerFailure(panicText(cause))}
			s.logFailure(c, panicText(cause)+"\n"+string(debug.Stack()))
		}
	}()
	value, err := s.handlerOf(c)(c, c.event)
	if err != nil {
		text := err.Error()
		s.logFailure(c, text)
		if coded := (*callError)(nil); errors.As(err, &coded) {
			return outcome{failure: &errorMessage{Code: coded.message.Code, Message: text}}
		}
		return outcome{failure: handlerFailure(text)}
	}
	if sequence, ok := asSequence(value); ok {
		frame, failure := encodeSequence(sequence, c.openStream(), s.facts.MaxResultBytes)
		return outcome{frame, failure}
	}
	frame, err := encodeValue(value)
	if err != nil {
		return outcome{failure: notJSON(err)}
	}
	if size := len(frame) - resultOffset; size > s.facts.MaxResultBytes {
		return outcome{failure: tooLarge(size, s.facts.MaxResultBytes)}
	}
	return outcome{frame: frame}
}

// handlerOf returns the function that runs a call: the handler, or the entry that the service names.
func (s *server) handlerOf(c *call) Handler {
	if d := s.facts.durable; d != nil && d.entries != (durableEntries{}) {
		switch entry := c.parsedHeader().Entry; {
		case entry == entryAlarm && s.alarm != nil:
			return s.alarm.handler()
		case entry == entrySleep && s.sleep != nil:
			return s.sleep.handler()
		}
	}
	return s.handler
}

func asSequence(value any) (iter.Seq[any], bool) {
	switch sequence := value.(type) {
	case iter.Seq[any]:
		return sequence, sequence != nil
	case func(func(any) bool):
		return sequence, sequence != nil
	}
	return nil, false
}

// finish answers a call whose code has ended, and returns the waiting call that gets its slot, or nil.
func (s *server) finish(c *call, result outcome, started time.Time) (next *call) {
	micros := time.Since(started).Microseconds()
	// The context ends first. A goroutine that the handler started then fails to write, or finish waits for its
	// chunk.
	c.end(context.Canceled)
	if stream := c.stream.Load(); stream != nil {
		stream.finish()
	}
	s.lock.Lock()
	reason := c.reason
	delete(c.conn.calls, c.id)
	next = s.nextCall()
	s.lock.Unlock()

	failure := result.failure
	if reason != "" && (reason != reasonInterrupt || failure != nil) {
		failure = cancelledFailure(reason)
	}
	var saved []byte
	if d := s.facts.durable; d != nil {
		saved, failure = d.settle(c, failure)
	}
	if spans := c.spans.Load(); spans != nil && c.conn.takesSpans {
		c.conn.send(spans.frame(c.id, started))
	}
	if failure != nil {
		failure.RunMicros = &micros
		c.conn.send(encodeError(c.id, failure))
		return next
	}
	putResult(result.frame, c.id, micros)
	if saved != nil {
		result.frame = append(saved, result.frame...)
	}
	c.conn.send(result.frame)
	return next
}

func cancelledFailure(reason string) *errorMessage {
	if reason == reasonTimeout {
		return &errorMessage{Code: codeTimeout, Message: reasonTexts[reason]}
	}
	return handlerFailure("CallCancelled: " + reasonTexts[reason])
}

func (s *server) logFailure(c *call, text string) {
	trace := c.parsedHeader().TraceID
	if trace == "" {
		trace = "-"
	}
	logLine("call failed, trace id " + trace + "\n" + text)
}

func panicText(cause any) string {
	return fmt.Sprintf("panic: %v", cause)
}

// handler returns the handler that runs the hook; its event is ignored.
func (h Hook) handler() Handler {
	return func(ctx context.Context, _ json.RawMessage) (any, error) { return nil, h(ctx) }
}

// runHook runs an initializer or a pre_stop function and sends its error to ended. A panic becomes an error.
func runHook(ctx context.Context, hook Hook, ended chan<- error) {
	err := errGoexit
	defer func() {
		if cause := recover(); cause != nil {
			logLine(panicText(cause) + "\n" + string(debug.Stack()))
			err = errors.New(panicText(cause))
		}
		ended <- err
	}()
	if err = hook(ctx); err != nil {
		// Error() is user code and may panic, so it is called here, where a panic becomes a failure.
		err = errors.New(err.Error())
	}
}
