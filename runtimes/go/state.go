package rookery

// The state that State gives to code, and its JSON.

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
)

var errCallEnded = errors.New("the call has ended: use the state only until the handler returns")

// State returns the agent's state as a *T, a struct or a map whose JSON is one object. At first it is empty.
//
// If the agent is durable, a change is saved before the caller gets the answer, and a call that fails changes
// nothing. Otherwise the state exists as long as the instance, and calls that run at once share it. The next
// save drops members of the saved object that T lacks.
//
// The pointer is valid until the handler returns. Goroutines that the handler has started must not use it
// afterwards. Outside of an instance, such as in a unit test, each call of State returns an empty state.
//
//	type counter struct{ Calls int }
//
//	state, err := rookery.State[counter](ctx)
//	if err != nil {
//		return nil, err
//	}
//	state.Calls++
func State[T any](ctx context.Context) (*T, error) {
	c := FromContext(ctx)
	if c.facts == nowhere {
		return openDocument[T](&document{}, nil)
	}
	if d := c.facts.durable; d != nil {
		d.lock.Lock()
		defer d.lock.Unlock()
		return openState[T](d, c)
	}
	memory := &c.facts.memory
	memory.lock.Lock()
	defer memory.lock.Unlock()
	if _, ok := memory.value.(*T); !ok && memory.value != nil {
		return nil, otherType[T](memory.value)
	}
	return openDocument[T](&memory.document, nil)
}

// memory is the state of an agent that is not durable.
type memory struct {
	lock sync.Mutex
	document
}

// document is a state as the code sees it.
type document struct {
	// A *T, decoded at its first use; nil before.
	value any
	// Sets the value to what the text contains. The pointer stays valid.
	reset func(text []byte) error
}

// openDocument returns the value of a document. It decodes the text if the document has no value of this
// type.
func openDocument[T any](d *document, text []byte) (*T, error) {
	if value, ok := d.value.(*T); ok {
		return value, nil
	}
	value := new(T)
	reset := func(text []byte) error {
		var fresh T
		if err := decodeState(text, &fresh); err != nil {
			return err
		}
		*value = fresh
		return nil
	}
	if err := reset(text); err != nil {
		return nil, fmt.Errorf("the saved state does not fit %T: %w", *value, err)
	}
	d.value, d.reset = value, reset
	return value, nil
}

func otherType[T any](value any) error {
	return fmt.Errorf("the state is in use as a %T and cannot be a %T too", value, new(T))
}

// decodeState reads the JSON of a state; empty: none was saved. A panic of the user's UnmarshalJSON becomes
// an error.
func decodeState(text []byte, value any) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = errors.New(panicText(cause))
		}
	}()
	if len(text) == 0 {
		text = []byte("{}")
	}
	return json.Unmarshal(text, value)
}

// encodeState returns the JSON of a state. A panic of the user's MarshalJSON becomes an error.
func encodeState(value any) (text []byte, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = errors.New(panicText(cause))
		}
	}()
	var buffer bytes.Buffer
	encoder := json.NewEncoder(&buffer)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, placed(err, value)
	}
	text = bytes.TrimSuffix(buffer.Bytes(), []byte("\n"))
	if string(text) == "null" { // a map that is nil
		return []byte("{}"), nil
	}
	if text[0] != '{' {
		return nil, fmt.Errorf("a %T is not a JSON object", value)
	}
	return text, nil
}
