package rookery

import (
	"context"
	"fmt"
	"os"
	"time"
)

// Minimum for the grace of a STOP, so that with a grace of 0 the instance can still send STOPPED.
const leastGrace = 100 * time.Millisecond

// initialization is the outcome of INIT. Guarded by the server's lock.
type initialization struct {
	// Reason of the failure; nil without a failure.
	failure *errorMessage
	// The frame that answers every INIT; nil until the outcome is known.
	initAnswer []byte
	waiting    []*connection
	initWork   *work
	initDone   chan struct{}
}

// receiveInit starts the initialization once. Every INIT gets the outcome of the first.
func (s *server) receiveInit(c *connection, payload []byte) error {
	var message initMessage
	if err := readMessage(payload, "INIT", &message); err != nil {
		return err
	}
	limit := maxFrameBytes - resultOffset
	if message.Concurrency < 1 || message.Concurrency > 1000 || message.MaxResultBytes < 1 || message.MaxResultBytes > limit {
		return c.send(encodeError(0, &errorMessage{Code: codeProtocol, Message: fmt.Sprintf(
			"INIT needs concurrency, 1 to 1000, and maxResultBytes, 1 to %d", limit)}))
	}
	s.lock.Lock()
	answer := s.initAnswer
	switch {
	case answer != nil:
	case s.state == stateStopping:
		answer = encodeError(0, stoppingFailure)
	default:
		s.waiting = append(s.waiting, c)
		if s.state == stateNew {
			s.state = stateInitializing
			s.facts = &facts{initMessage: message, logger: newLogger()}
			if message.Durable != nil {
				s.facts.durable = newDurable(message.Durable, s.dataConnections)
				s.facts.Durable = nil // with the text of the state
			}
			s.initWork = &work{current: Context{facts: s.facts}}
			go s.initialize()
		}
	}
	s.lock.Unlock()
	if answer != nil {
		return c.send(answer)
	}
	return nil
}

func (s *server) initialize() {
	timeout := time.Duration(s.facts.InitTimeoutMs) * time.Millisecond
	started := time.Now()
	failure := s.runInitializer(timeout)
	if d := s.facts.durable; d != nil && failure == nil {
		failure = d.begin(&s.initWork.current)
	}
	answer := encodeJSON(frameInitOK, 0, initOKMessage{InitMicros: time.Since(started).Microseconds()})
	if failure != nil {
		logLine(failure.Message)
		answer = encodeError(0, failure)
	}

	s.lock.Lock()
	s.initAnswer = answer
	waiting := s.waiting
	s.waiting = nil
	s.failure = failure
	stopping := s.state == stateStopping
	switch {
	case stopping:
	case failure != nil:
		s.state = stateFailed
	default:
		s.state = stateReady
	}
	s.concurrency = s.facts.Concurrency
	s.decideReading()
	s.lock.Unlock()

	for _, c := range waiting {
		c.send(answer)
	}
	if failure != nil && !stopping {
		s.cancelAll(failure)
	} else if !stopping {
		s.startQueued()
	}
	close(s.initDone)
}

// runInitializer returns when the initializer has ended or its time is over: Go code cannot be stopped.
func (s *server) runInitializer(timeout time.Duration) *errorMessage {
	if s.handler == nil || s.facts.Handler == "" {
		return &errorMessage{Code: codeInitializer, Message: "empty user call code"}
	}
	if path := s.facts.CodePath; path != "" {
		if why := whyNoDirectory(path); why != "" {
			return &errorMessage{Code: codeLoad, Message: "cannot load the handler " + s.facts.Handler +
				": the code directory " + path + " " + why}
		}
	}
	if failure := s.checkDurable(); failure != nil {
		return failure
	}
	if s.initializer == nil {
		return nil
	}
	var expired <-chan time.Time
	if timeout > 0 {
		timer := time.NewTimer(timeout)
		defer timer.Stop()
		expired = timer.C
		s.initWork.until = time.Now().Add(timeout)
	}
	ended := make(chan error, 1)
	go runHook(s.initWork, s.initializer, ended)
	select {
	case err := <-ended:
		if err == nil {
			return nil
		}
		return &errorMessage{Code: codeInitializer, Message: "initializer failed: " + err.Error()}
	case <-expired:
		s.initWork.end(context.DeadlineExceeded)
		return &errorMessage{Code: codeInitializerTimeout, Message: fmt.Sprintf("initializer timed out after %g s", timeout.Seconds())}
	}
}

// checkDurable returns why this program cannot be the durable agent of INIT, or nil.
func (s *server) checkDurable() *errorMessage {
	d := s.facts.durable
	if d == nil {
		return nil
	}
	missing := func(entry, name, option string) *errorMessage {
		return &errorMessage{Code: codeLoad, Message: fmt.Sprintf(
			"cannot load the %s entry %s: the program calls rookery.Start without rookery.%s", entry, name, option)}
	}
	if d.entries.Alarm != "" && s.alarm == nil {
		return missing(entryAlarm, d.entries.Alarm, "WithAlarm")
	}
	if d.entries.Sleep != "" && s.sleep == nil {
		return missing(entrySleep, d.entries.Sleep, "WithSleep")
	}
	return d.check()
}

// startQueued runs the calls that arrived during the initialization.
func (s *server) startQueued() {
	for {
		s.lock.Lock()
		var c *call
		if s.running < s.concurrency && s.queue.Len() > 0 && s.state == stateReady {
			s.running++
			c = s.nextCall()
		}
		s.lock.Unlock()
		if c == nil {
			return
		}
		go s.runCalls(c)
	}
}

// ending is the state of a stop. Guarded by the server's lock.
type ending struct {
	stoppers []*connection
	// Closed when the instance is stopping and no call runs.
	idle     chan struct{}
	idleTold bool
}

// forget removes a closed connection from those that wait for STOPPED.
func (e *ending) forget(c *connection) {
	for i, stopper := range e.stoppers {
		if stopper == c {
			e.stoppers = append(e.stoppers[:i], e.stoppers[i+1:]...)
			return
		}
	}
}

// tellIdle closes idle if the instance is stopping and no call runs. The caller holds the lock.
func (s *server) tellIdle() {
	if s.state == stateStopping && s.running == 0 && !s.idleTold {
		s.idleTold = true
		close(s.idle)
	}
}

// stop ends the instance within its grace and sends STOPPED to c, unless c is nil. A second stop only adds
// its c.
func (s *server) stop(c *connection, grace time.Duration) {
	s.lock.Lock()
	if c != nil {
		s.stoppers = append(s.stoppers, c)
	}
	before := s.state
	s.state = stateStopping
	s.decideReading()
	s.tellIdle()
	s.lock.Unlock()
	if before == stateStopping {
		return
	}
	go s.windUp(before, grace)
}

func (s *server) windUp(before state, grace time.Duration) {
	late := time.NewTimer(max(grace, leastGrace))
	until := time.Now().Add(grace)
	s.cancelAll(stoppingFailure)
	failure := func(what string) *errorMessage {
		message := fmt.Sprintf("%s timed out after %g s", what, grace.Seconds())
		logLine("rookery: " + message)
		return &errorMessage{Code: codePreStop, Message: message}
	}
	if before == stateInitializing {
		s.initWork.end(context.Canceled)
		select {
		case <-s.initDone:
		case <-late.C:
			s.end(failure("stopping the initializer"))
			return
		}
	}
	select {
	case <-s.idle:
	case <-late.C:
		s.end(failure("stopping the running calls"))
		return
	}
	if before != stateReady || s.preStop == nil {
		s.end(nil)
		return
	}
	hook := &work{current: Context{facts: s.facts}, until: until}
	ended := make(chan error, 1)
	go runHook(hook, s.preStop, ended)
	select {
	case err := <-ended:
		if err == nil {
			s.end(nil)
			return
		}
		message := "pre_stop failed: " + err.Error()
		logLine(message)
		s.end(&errorMessage{Code: codePreStop, Message: message})
	case <-late.C:
		hook.end(context.DeadlineExceeded)
		s.end(failure("pre_stop"))
	}
}

// end sends STOPPED with the failure, if any, and ends the process with exit code 0.
func (s *server) end(failure *errorMessage) {
	s.lock.Lock()
	stoppers := s.stoppers
	s.lock.Unlock()
	answer := encodeJSON(frameStopped, 0, stoppedMessage{Error: failure})
	for _, c := range stoppers {
		c.send(answer)
	}
	s.exit(0)
}

// whyNoDirectory returns the reason why a path is not a readable directory; "" when it is one.
func whyNoDirectory(path string) string {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		return ""
	}
	if err == nil {
		return "is a file and not a directory: unpack it, and mount the directory"
	}
	if target, err := os.Readlink(path); err == nil {
		return "is a link to " + target + ", which does not exist inside the sandbox"
	}
	return "does not exist"
}
