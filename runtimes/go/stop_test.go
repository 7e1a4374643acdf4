package rookery

// Tests the stop of a program and its pre_stop hook.

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestStopCancelsRunsPreStopAndEnds(t *testing.T) {
	begun := make(chan string, 1)
	i := startInstance(t, untilCancelled(begun), WithPreStop(func(ctx context.Context) error {
		if _, bounded := ctx.Deadline(); !bounded {
			return errors.New("no deadline")
		}
		return errors.New("cannot flush " + FromContext(ctx).Name())
	}))
	p := i.connect().ready()
	other := i.connect().ready()
	p.call(1, "1")
	receive(t, begun)
	other.call(1, "2")
	p.until(1, 1)
	p.control.json(frameStop, 0, stopMessage{GraceMs: 60_000})
	other.data.read().expectFailure(t, codeProtocol, "the instance is stopping")
	p.data.read().expectFailure(t, codeHandler, "the instance is stopping")
	got := p.control.read()
	if got.kind != frameStopped || !strings.Contains(string(got.payload), "pre_stop failed: cannot flush agent") {
		t.Fatalf("got type %d %q", got.kind, got.payload)
	}
	if code := receive(t, i.exited); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	p.call(2, "{}")
	p.data.read().expectFailure(t, codeProtocol, "the instance is stopping")
}

func TestStopDoesNotWaitLongerThanItsGrace(t *testing.T) {
	begun, release := make(chan struct{}, 1), make(chan struct{})
	i := startInstance(t, func(context.Context, json.RawMessage) (any, error) {
		begun <- struct{}{}
		<-release
		return nil, nil
	}, WithPreStop(func(context.Context) error { panic("must not run while a call does") }))
	defer close(release)
	p := i.connect().ready()
	p.call(1, "{}")
	receive(t, begun)
	p.control.json(frameStop, 0, stopMessage{GraceMs: 10})
	if got := p.control.read(); !strings.Contains(string(got.payload), "stopping the running calls timed out after 0.01 s") {
		t.Fatalf("got type %d %q", got.kind, got.payload)
	}
	receive(t, i.exited)
}

func TestStopOfAnInstanceThatWasNeverInitialized(t *testing.T) {
	i := startInstance(t, echo, WithPreStop(func(context.Context) error { return errors.New("must not run") }))
	p := i.connect()
	p.control.json(frameStop, 0, stopMessage{})
	if got := p.control.read(); got.kind != frameStopped || string(got.payload) != "{}" {
		t.Fatalf("got type %d %q", got.kind, got.payload)
	}
	receive(t, i.exited)
}
