package rookery

// Queues arrived calls, and passes cancels and credit to the running ones.

import (
	"context"
	"errors"
	"net"
	"sync"
)

var stoppingFailure = &errorMessage{Code: codeProtocol, Message: "the instance is stopping"}

// admit decides whether an arrived call runs, is refused with an answer, or waits.
func (s *server) admit(c *call) (runs bool, refusal *errorMessage, err error) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if c.id == 0 || c.conn.calls[c.id] != nil {
		return false, nil, protocolError("a CALL has a call id that is 0 or in use")
	}
	if c.conn.ended {
		return false, nil, net.ErrClosed
	}
	if reason := c.conn.earlyCancels.take(c.id); reason != "" {
		return false, cancelledFailure(reason), nil
	}
	switch s.state {
	case stateNew:
		return false, &errorMessage{Code: codeProtocol, Message: "a CALL came before INIT"}, nil
	case stateFailed:
		return false, s.failure, nil
	case stateStopping:
		return false, stoppingFailure, nil
	}
	c.conn.calls[c.id] = c
	if s.state == stateReady && s.running < s.concurrency {
		s.running++
		c.running = true
		return true, nil, nil
	}
	c.place = s.queue.PushBack(c)
	c.conn.queuedCalls++
	c.conn.queuedBytes += len(c.event)
	return false, nil, s.waitForCapacity(c.conn)
}

// waitForCapacity blocks the reader of a connection while too many of its calls wait.
func (s *server) waitForCapacity(conn *connection) error {
	if conn.drained == nil {
		conn.drained = sync.NewCond(&s.lock)
	}
	conn.paused = conn.queuedCalls >= maxQueuedCalls || conn.queuedBytes > maxQueuedBytes
	for conn.paused && !conn.ended {
		conn.drained.Wait()
		conn.paused = conn.queuedCalls > maxQueuedCalls/2 || conn.queuedBytes > maxQueuedBytes/2
	}
	if conn.ended {
		return net.ErrClosed
	}
	return nil
}

// dequeue removes a call from the queue. The caller holds the lock.
func (s *server) dequeue(c *call) {
	s.queue.Remove(c.place)
	c.place = nil
	c.conn.queuedCalls--
	c.conn.queuedBytes -= len(c.event)
	if c.conn.paused {
		c.conn.drained.Signal()
	}
}

// nextCall gives a free slot to the call that has waited longest, or releases the slot. The caller holds the
// lock.
func (s *server) nextCall() *call {
	first := s.queue.Front()
	if first == nil || s.state == stateStopping {
		s.running--
		s.tellIdle()
		return nil
	}
	c := first.Value.(*call)
	s.dequeue(c)
	c.running = true
	c.current = Context{facts: s.facts, call: c}
	return c
}

// receiveCancel cancels a call of the client's data connection.
func (s *server) receiveCancel(control *connection, callID uint32, reason string) error {
	s.lock.Lock()
	peer := s.clients[control.client]
	if peer == nil || peer.data == nil {
		s.lock.Unlock()
		return nil
	}
	data := peer.data
	c := data.calls[callID]
	switch {
	case c == nil:
		// The CALL may wait in the kernel while a handler runs. Reading on answers it now.
		data.earlyCancels.add(callID, reason)
		s.lock.Unlock()
		s.readOn(data)
	case c.running:
		c.reason = reason
		s.lock.Unlock()
		c.cancel(reason)
	default:
		s.dequeue(c)
		delete(data.calls, callID)
		s.lock.Unlock()
		data.send(encodeError(callID, cancelledFailure(reason)))
	}
	return nil
}

// receiveCredit grants credit to the stream of a call.
func (s *server) receiveCredit(control *connection, callID uint32, bytes uint32) {
	s.lock.Lock()
	var c *call
	if peer := s.clients[control.client]; peer != nil && peer.data != nil {
		c = peer.data.calls[callID]
	}
	s.lock.Unlock()
	if c == nil {
		return
	}
	if stream := c.openStream(); stream != nil {
		stream.grant(int64(bytes))
	}
}

// cancelAll answers the waiting calls with refusal and cancels the running ones.
func (s *server) cancelAll(refusal *errorMessage) {
	s.lock.Lock()
	var queued, running []*call
	for s.queue.Len() > 0 {
		c := s.queue.Front().Value.(*call)
		s.dequeue(c)
		delete(c.conn.calls, c.id)
		queued = append(queued, c)
	}
	for _, peer := range s.clients {
		if peer.data == nil {
			continue
		}
		for _, c := range peer.data.calls {
			c.reason = reasonStop
			running = append(running, c)
		}
	}
	s.lock.Unlock()
	for _, c := range running {
		c.end(context.Canceled)
	}
	for _, c := range queued {
		c.conn.send(encodeError(c.id, refusal))
	}
}

// logBroken logs a violation of the protocol that closed a connection. Other errors mean that the connection
// ended.
func logBroken(err error) {
	var broken protocolError
	if errors.As(err, &broken) {
		logLine("rookery: a control plane broke the protocol, its connection is closed: " + broken.Error())
	}
}
