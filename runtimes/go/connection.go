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
	// A control plane that takes nothing for so long has lost its connection.
	sendTimeout = 30 * time.Second
	// CANCELs that came before their CALL was read.
	maxEarlyCancels = 4096
	// What one data connection may have queued before it is not read any further.
	maxQueuedBytes = 16 * 1024 * 1024
	maxQueuedCalls = 10_000
)

// connection is one connection of a control plane. One goroutine at a time reads; any may send.
type connection struct {
	conn   net.Conn
	raw    syscall.RawConn
	reader *bufio.Reader
	header [headerBytes]byte
	client string
	number int32
	// Set while the goroutine that reads runs a handler. The one that clears it reads on.
	handling atomic.Bool

	sendLock sync.Mutex
	rawWriter

	// Below: guarded by the server's lock, and only of use on a data connection.

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

// readFrame returns the next frame. The payload is the receiver's own.
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

// send writes one frame whole. A connection that cannot take it is ended, which its reader then sees.
func (c *connection) send(frame []byte) error {
	c.sendLock.Lock()
	defer c.sendLock.Unlock()
	// Nearly always the kernel takes a frame at once. Only when it does not, a timer is worth its cost.
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

// earlyCancels remembers the newest CANCELs whose call is not known: it was not read yet, or was answered already.
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

// take returns the reason of a CANCEL that came before its call, "" when none came.
func (e *earlyCancels) take(callID uint32) string {
	if len(e.reasons) == 0 {
		return ""
	}
	reason := e.reasons[callID]
	delete(e.reasons, callID)
	return reason
}
