package rookery

// Tests streams: their events, their credit and their end.

import (
	"context"
	"encoding/json"
	"iter"
	"strings"
	"testing"
)

func stream(h *callHeader) { h.Stream, h.Credit = true, 10 }

func TestAStreamSendsNoMoreThanItWasGranted(t *testing.T) {
	wrote := make(chan int, 10)
	p := startInstance(t, func(ctx context.Context, _ json.RawMessage) (any, error) {
		stream, err := FromContext(ctx).Stream()
		if err != nil {
			return nil, err
		}
		for n := range 3 {
			if _, err := stream.WriteString(strings.Repeat("a", 8)); err != nil {
				return nil, err
			}
			wrote <- n
		}
		return "end", nil
	}).connect().ready()
	p.call(1, "{}", stream)
	for range 2 {
		if got := p.data.read(); got.kind != frameChunk || string(got.payload) != "aaaaaaaa" {
			t.Fatalf("expected a CHUNK, got type %d %q", got.kind, got.payload)
		}
	}
	receive(t, wrote)
	receive(t, wrote)
	p.until(1, 0)
	if len(wrote) != 0 {
		t.Fatal("a third chunk was sent: 16 bytes of 10 were used")
	}
	p.credit(1, 7)
	if got := p.data.read(); got.kind != frameChunk {
		t.Fatalf("expected a CHUNK, got type %d", got.kind)
	}
	p.data.read().expectResult(t, `"end"`)
}

func TestACancelledCallWaitsForNoCredit(t *testing.T) {
	begun := make(chan struct{}, 1)
	p := startInstance(t, func(ctx context.Context, _ json.RawMessage) (any, error) {
		stream, _ := FromContext(ctx).Stream()
		begun <- struct{}{}
		for {
			if _, err := stream.Write([]byte("0123456789")); err != nil {
				return nil, err
			}
		}
	}).connect().ready()
	p.call(1, "{}", stream)
	receive(t, begun)
	p.data.read()
	p.control.json(frameCancel, 1, cancelMessage{reasonCaller})
	p.data.read().expectFailure(t, codeHandler, "the caller went away")
}

func TestNoChunkFollowsTheAnswer(t *testing.T) {
	failed := make(chan error, 1)
	p := startInstance(t, func(ctx context.Context, event json.RawMessage) (any, error) {
		if string(event) == "1" {
			stream, _ := FromContext(ctx).Stream()
			go func() {
				<-ctx.Done()
				_, err := stream.WriteString("late")
				failed <- err
			}()
		}
		return event, nil
	}).connect().ready()
	p.call(1, "1", stream)
	p.data.read().expectResult(t, "1")
	if err := receive(t, failed); err == nil {
		t.Fatal("a chunk was sent after the answer")
	}
	p.call(2, "2")
	p.data.read().expectResult(t, "2")
}

func TestASequenceIsStreamedOrCollected(t *testing.T) {
	p := startInstance(t, func(context.Context, json.RawMessage) (any, error) {
		return iter.Seq[any](func(yield func(any) bool) {
			_ = yield("text") && yield(nil) && yield(map[string]int{"n": 1})
		}), nil
	}).connect().ready()
	p.call(1, "{}")
	p.data.read().expectResult(t, `["text",null,{"n":1}]`)
	p.call(2, "{}", stream)
	for _, event := range []string{"text", `{"n":1}`} {
		if got := p.data.read(); got.kind != frameChunk || string(got.payload) != event {
			t.Fatalf("expected the CHUNK %s, got type %d %q", event, got.kind, got.payload)
		}
		p.credit(2, 10)
	}
	p.data.read().expectResult(t, "null")
}
