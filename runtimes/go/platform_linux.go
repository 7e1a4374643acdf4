package rookery

import (
	"errors"
	"os"
	"syscall"
	"unsafe"
)

const clockMonotonic = 1

// monotonicMs returns the time in milliseconds of the monotonic clock, which all processes of this machine
// share. Package time does not expose it.
func monotonicMs() (float64, bool) {
	var now syscall.Timespec
	_, _, failure := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&now)), 0)
	return float64(now.Sec)*1e3 + float64(now.Nsec)/1e6, failure == 0
}

// gone watches data connections for their end, without reading them. So the goroutine that reads a connection
// can run a handler itself, and the end of the connection still cancels the call. Go waits for an epoll
// instance as for any other file, so the watch costs nothing until a connection ends.
type gone struct {
	file *os.File
	raw  syscall.RawConn
}

const watchedEnd = syscall.EPOLLRDHUP | syscall.EPOLLONESHOT

func newGone() (*gone, error) {
	fd, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	if err := syscall.SetNonblock(fd, true); err != nil {
		syscall.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	file := os.NewFile(uintptr(fd), "epoll")
	raw, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	return &gone{file, raw}, nil
}

// add watches a connection until it is closed. wait reports the connection by number.
func (g *gone) add(c *connection, number int32) error {
	var refused error
	watch := func(epoll, fd int) {
		event := syscall.EpollEvent{Events: watchedEnd, Fd: number}
		refused = os.NewSyscallError("epoll_ctl", syscall.EpollCtl(epoll, syscall.EPOLL_CTL_ADD, fd, &event))
	}
	var closed error
	err := c.raw.Control(func(fd uintptr) {
		closed = g.raw.Control(func(epoll uintptr) { watch(int(epoll), int(fd)) })
	})
	return errors.Join(err, closed, refused)
}

// wait calls ended for every connection that the other side has closed, until the watch is closed.
func (g *gone) wait(ended func(number int32)) error {
	var events [16]syscall.EpollEvent
	for {
		var count int
		var failure error
		err := g.raw.Read(func(epoll uintptr) bool {
			count, failure = syscall.EpollWait(int(epoll), events[:], 0)
			return count != 0 && failure != syscall.EINTR
		})
		if err != nil {
			return nil // the watch was closed
		}
		if failure != nil {
			return os.NewSyscallError("epoll_wait", failure)
		}
		for _, event := range events[:count] {
			ended(event.Fd)
		}
	}
}

func (g *gone) close() { g.file.Close() }

// tryWrite writes as much as the kernel accepts without blocking.
func (c *connection) tryWrite(frame []byte) (int, error) {
	c.unsent, c.sent = frame, 0
	err := c.raw.Write(c.writeOnce)
	sent, sendErr := max(c.sent, 0), c.sendErr
	c.unsent = nil
	if err == nil && sendErr != syscall.EAGAIN && sendErr != syscall.EINTR {
		err = sendErr
	}
	return sent, err
}

type rawWriter struct {
	unsent  []byte
	sent    int
	sendErr error
	// Created once, because a function literal for each write would be an allocation.
	writeOnce func(fd uintptr) bool
}

func (w *rawWriter) prepare() {
	w.writeOnce = func(fd uintptr) bool {
		w.sent, w.sendErr = syscall.Write(int(fd), w.unsent)
		return true
	}
}
