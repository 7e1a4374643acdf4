package rookery

// Runs handlers and hooks, and answers their calls.

import (
	"context"
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
	value, err := s.handler(c, c.event)
	if err != nil {
		s.logFailure(c, err.Error())
		return outcome{failure: handlerFailure(err.Error())}
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

	if spans := c.spans.Load(); spans != nil && c.conn.takesSpans {
		c.conn.send(spans.frame(c.id, started))
	}
	switch {
	case reason != "" && (reason != reasonInterrupt || result.failure != nil):
		failure := cancelledFailure(reason)
		failure.RunMicros = &micros
		c.conn.send(encodeError(c.id, failure))
	case result.failure != nil:
		result.failure.RunMicros = &micros
		c.conn.send(encodeError(c.id, result.failure))
	default:
		putResult(result.frame, c.id, micros)
		c.conn.send(result.frame)
	}
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
