//go:build !linux

package rookery

import "errors"

// monotonicMs is not there: the time of a call counts from its arrival.
func monotonicMs() (float64, bool) { return 0, false }

// gone is not there: a connection that a handler runs on is read by another goroutine meanwhile.
type gone struct{}

func newGone() (*gone, error) { return nil, errors.New("this system has no epoll") }

func (g *gone) add(*connection, int32) error { return nil }

func (g *gone) wait(func(int32)) error { return nil }

func (g *gone) close() {}

type rawWriter struct{}

func (w *rawWriter) prepare() {}

func (c *connection) tryWrite([]byte) (int, error) { return 0, nil }
