package rookery

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	readBufferBytes = 16 * 1024
	// Time after which a control plane that reads nothing loses its connection.
	sendTimeout = 30 * time.Second
	// Limit for stored CANCELs that arrived before their CALL was read.
	maxEarlyCancels = 4096
	// Limits of the waiting calls of each data connection. Reading pauses above them, until half of that is
	// left.
	maxQueuedBytes = 8 * 1024 * 1024
	maxQueuedCalls = 512
)

// connection is a connection of a control plane. One goroutine at a time reads; any goroutine may send.
type connection struct {
	conn   net.Conn
	raw    syscall.RawConn
	reader *bufio.Reader
	header [headerBytes]byte
	client string
	number int32
	// True if the client accepts SPANS.
	takesSpans bool
	// True while the goroutine that reads runs a handler. The goroutine that sets it to false continues reading.
	handling atomic.Bool

	sendLock sync.Mutex
	rawWriter

	// The following fields are guarded by the server's lock. Only data connections use them.

	calls        map[uint32]*call
	queuedCalls  int
	queuedBytes  int
	ended        bool
	drained      *sync.Cond
	paused       bool
	earlyCancels earlyCancels
}

func newConnection(conn net.Conn) (*connection, error) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		if err := tcp.SetNoDelay(true); err != nil {
			return nil, err
		}
	}
	withRaw, ok := conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("a %T has no descriptor", conn)
	}
	raw, err := withRaw.SyscallConn()
	if err != nil {
		return nil, err
	}
	c := &connection{
		conn:   conn,
		raw:    raw,
		reader: bufio.NewReaderSize(conn, readBufferBytes),
		calls:  map[uint32]*call{},
	}
	c.rawWriter.prepare()
	return c, nil
}

// readFrame returns the next frame. The receiver owns the payload.
func (c *connection) readFrame() (kind byte, callID uint32, payload []byte, err error) {
	if _, err = io.ReadFull(c.reader, c.header[:]); err != nil {
		return 0, 0, nil, err
	}
	length := binary.BigEndian.Uint32(c.header[:])
	if length < frameOverhead || length > maxFrameBytes {
		return 0, 0, nil, protocolErrorf("a frame of %d bytes; %d to %d are allowed", length, frameOverhead, maxFrameBytes)
	}
	payload = make([]byte, length-frameOverhead)
	if _, err = io.ReadFull(c.reader, payload); err != nil {
		return 0, 0, nil, err
	}
	return c.header[4], binary.BigEndian.Uint32(c.header[5:]), payload, nil
}

// send writes one frame as a whole. If that fails, it closes the connection, which the connection's reader
// notices.
func (c *connection) send(frame []byte) error {
	c.sendLock.Lock()
	defer c.sendLock.Unlock()
	// The kernel nearly always accepts a frame immediately. A timer is set only if it does not.
	sent, err := c.tryWrite(frame)
	if err == nil && sent < len(frame) {
		err = c.sendSlowly(frame[sent:])
	}
	if err != nil {
		c.conn.Close()
	}
	return err
}

func (c *connection) sendSlowly(rest []byte) error {
	if err := c.conn.SetWriteDeadline(time.Now().Add(sendTimeout)); err != nil {
		return err
	}
	if _, err := c.conn.Write(rest); err != nil {
		return err
	}
	return c.conn.SetWriteDeadline(time.Time{})
}

// earlyCancels stores the newest CANCELs whose call is unknown: not read yet, or already answered.
type earlyCancels struct {
	reasons map[uint32]string
	order   []uint32
}

func (e *earlyCancels) add(callID uint32, reason string) {
	if _, known := e.reasons[callID]; known {
		return
	}
	if e.reasons == nil {
		e.reasons = map[uint32]string{}
	}
	if len(e.order) >= maxEarlyCancels {
		delete(e.reasons, e.order[0])
		e.order = e.order[1:]
	}
	e.reasons[callID] = reason
	e.order = append(e.order, callID)
}

// take returns the reason of a CANCEL that arrived before its call, or "". It removes the stored CANCEL.
func (e *earlyCancels) take(callID uint32) string {
	if len(e.reasons) == 0 {
		return ""
	}
	reason := e.reasons[callID]
	delete(e.reasons, callID)
	return reason
}
