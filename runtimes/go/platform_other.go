//go:build !linux

package rookery

import "errors"

// monotonicMs is not available on this system: the time limit of a call starts with its arrival.
func monotonicMs() (float64, bool) { return 0, false }

// gone is not available on this system. While a handler runs, another goroutine reads its connection instead.
type gone struct{}

func newGone() (*gone, error) { return nil, errors.New("this system has no epoll") }

func (g *gone) add(*connection, int32) error { return nil }

func (g *gone) wait(func(int32)) error { return nil }

func (g *gone) close() {}

type rawWriter struct{}

func (w *rawWriter) prepare() {}

func (c *connection) tryWrite([]byte) (int, error) { return 0, nil }
