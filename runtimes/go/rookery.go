// Package rookery turns a Go program into a Rookery agent or function.
//
//	func main() {
//		rookery.Start(func(ctx context.Context, event json.RawMessage) (any, error) {
//			return map[string]string{"hello": rookery.FromContext(ctx).Name()}, nil
//		})
//	}
package rookery

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// Handler answers a call. The event is the JSON that the caller sent; the handler may modify it. The returned
// value is converted to JSON. A json.RawMessage is sent as it is. An iter.Seq[any] is streamed if the caller
// asked for a stream, otherwise collected into an array. The context ends when the call is cancelled, its
// caller disconnects, or the handler has returned. Go code cannot be interrupted: a handler that ignores its
// context keeps its slot until it returns.
type Handler func(ctx context.Context, event json.RawMessage) (any, error)

// Hook is an initializer or a pre_stop function.
type Hook func(ctx context.Context) error

// Option is a setting of Start.
type Option func(*options)

type options struct {
	handler     Handler
	initializer Hook
	preStop     Hook
	alarm       AlarmHandler
	sleep       Hook
}

// WithInitializer sets a function that runs once, before the first call. When it fails, every call fails with
// its error.
func WithInitializer(initializer Hook) Option {
	return func(o *options) { o.initializer = initializer }
}

// WithPreStop sets a function that runs once when the instance stops, after the last call. The deadline of
// its context is the end of the stop's grace.
func WithPreStop(preStop Hook) Option {
	return func(o *options) { o.preStop = preStop }
}

// WithAlarm sets a function that gets the alarms of a durable agent, if the create names an alarm entry.
// Without one the handler gets {"alarm": {…}}.
func WithAlarm(alarm AlarmHandler) Option {
	return func(o *options) { o.alarm = alarm }
}

// WithSleep sets a function that runs before a durable agent falls asleep, if the create names a sleep entry.
// Its change of the state is saved. It has 5 s.
func WithSleep(sleep Hook) Option {
	return func(o *options) { o.sleep = sleep }
}

const sigtermGrace = 10 * time.Second

// Start serves the instance and never returns: the program ends when Rookery stops it. Call it once, from
// main.
//
// Start ends the program with exit code 2 if the environment names no address to listen on.
func Start(handler Handler, settings ...Option) {
	chosen := &options{handler: handler}
	for _, set := range settings {
		set(chosen)
	}
	listener, secret, err := listenFromEnvironment()
	if err != nil {
		fmt.Fprintln(os.Stderr, "rookery:", err)
		os.Exit(2)
	}
	s := newServer(chosen, secret, exitOnce(listener))
	terminate := make(chan os.Signal, 1)
	signal.Notify(terminate, syscall.SIGTERM, os.Interrupt)
	go func() {
		<-terminate
		s.stop(nil, sigtermGrace)
	}()
	s.serve(listener)
	select {} // the listener was closed because the process ends
}

// exitOnce returns a function that removes the socket file and ends the process.
func exitOnce(listener net.Listener) func(int) {
	var once sync.Once
	return func(code int) {
		once.Do(func() {
			listener.Close()
			os.Exit(code)
		})
	}
}
