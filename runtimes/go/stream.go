package rookery

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"unicode/utf8"
)

// ErrNoStream means that the caller did not request a stream.
var ErrNoStream = errors.New("there is no stream: the caller did not ask for text/event-stream")

// ErrStreamEnded means that the call of a stream has been answered.
var ErrStreamEnded = errors.New("the stream has ended: its call was answered")

const maxChunkBytes = maxFrameBytes - frameOverhead

// Stream sends events to the caller while the handler runs. Any goroutine may call its methods.
type Stream struct {
	call *call

	// Held while a chunk is written, so that no chunk follows the answer.
	sending sync.Mutex
	ended   bool

	lock    sync.Mutex
	credit  int64
	granted chan struct{}
}

func newStream(c *call, credit int64) *Stream {
	return &Stream{call: c, credit: credit, granted: make(chan struct{}, 1)}
}

// Write sends p as one event. p must be UTF-8 text of at most about 7 MiB. Write blocks while the reader is
// behind. It fails with the context's error when the call was cancelled, and with ErrStreamEnded when the
// call was answered.
func (s *Stream) Write(p []byte) (int, error) {
	if !utf8.Valid(p) {
		return 0, errors.New("a stream event must be UTF-8 text")
	}
	return s.send(append(make([]byte, headerBytes, headerBytes+len(p)), p...))
}

// WriteString sends text as one event, like Write.
func (s *Stream) WriteString(text string) (int, error) {
	if !utf8.ValidString(text) {
		return 0, errors.New("a stream event must be UTF-8 text")
	}
	return s.send(append(make([]byte, headerBytes, headerBytes+len(text)), text...))
}

// WriteJSON sends a value as one event of JSON text, like Write.
func (s *Stream) WriteJSON(value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = s.Write(text)
	return err
}

// send writes a frame that has its payload, and an empty header that send fills in.
func (s *Stream) send(frame []byte) (int, error) {
	size := len(frame) - headerBytes
	if size > maxChunkBytes {
		return 0, fmt.Errorf("a stream event of %d bytes exceeds the limit of %d", size, maxChunkBytes)
	}
	putHeader(frame, frameChunk, s.call.id)
	s.sending.Lock()
	defer s.sending.Unlock()
	if s.ended {
		return 0, ErrStreamEnded
	}
	// An empty chunk costs one byte.
	if err := s.takeCredit(int64(max(1, size))); err != nil {
		return 0, err
	}
	if err := s.call.conn.send(frame); err != nil {
		return 0, err
	}
	return size, nil
}

// takeCredit waits until credit is available. One chunk may overdraw it.
func (s *Stream) takeCredit(size int64) error {
	for {
		if err := s.call.Err(); err != nil {
			return err
		}
		s.lock.Lock()
		if s.credit > 0 {
			s.credit -= size
			s.lock.Unlock()
			return nil
		}
		s.lock.Unlock()
		select {
		case <-s.granted:
		case <-s.call.Done():
		}
	}
}

// grant adds credit.
func (s *Stream) grant(bytes int64) {
	s.lock.Lock()
	s.credit += bytes
	s.lock.Unlock()
	select {
	case s.granted <- struct{}{}:
	default:
	}
}

// finish waits until no chunk can be sent. The call's context has ended before.
func (s *Stream) finish() {
	s.sending.Lock()
	s.ended = true
	s.sending.Unlock()
}
