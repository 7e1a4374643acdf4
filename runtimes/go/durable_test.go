package rookery

// Tests the state of durable agents, their alarms and entries over real connections.

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
)

type counter struct {
	N    int            `json:"n"`
	Log  []string       `json:"log,omitempty"`
	Free map[string]any `json:"free,omitempty"`
}

// count adds 1 to the state, then does what the event says.
func count(ctx context.Context, event json.RawMessage) (any, error) {
	state, err := State[counter](ctx)
	if err != nil {
		return nil, err
	}
	var op string
	if err := json.Unmarshal(event, &op); err != nil {
		return nil, err
	}
	c := FromContext(ctx)
	if op == "get" {
		return state, nil
	}
	state.N++
	state.Log = append(state.Log, op)
	switch op {
	case "fail":
		return nil, errors.New("asked for")
	case "panic":
		panic("asked for")
	case "not JSON":
		state.Free = map[string]any{"x": math.NaN()}
	case "huge":
		state.Free = map[string]any{"x": strings.Repeat("x", 2000)}
	case "save":
		if err := c.Save(); err != nil {
			return nil, err
		}
		return nil, errors.New("after the save")
	case "save huge":
		state.Free = map[string]any{"x": strings.Repeat("x", 2000)}
		return nil, c.Save()
	case "hang":
		<-ctx.Done()
		if err := c.Save(); !errors.Is(err, context.DeadlineExceeded) {
			return nil, fmt.Errorf("Save returned %v", err)
		}
		return nil, ctx.Err()
	case "alarm":
		err = c.SetAlarm("later", At(time.UnixMilli(1234)).MaxLate(time.Minute), map[string]int{"a": 1})
	case "fails with an alarm":
		return nil, errors.Join(c.SetAlarm("never", After(0), nil), errors.New("asked for"))
	case "cancel":
		err = c.CancelAlarm("later")
	}
	return state.N, err
}

func durableInit(state string, change ...func(*durableMessage)) func(*initMessage) {
	return func(m *initMessage) {
		m.Durable = &durableMessage{MaxStateBytes: 1000, Wake: Wake{Reason: "created"}}
		if state != "" {
			m.Durable.State = &state
			m.Durable.Version = 7
			m.Durable.Wake = Wake{Reason: "crash", Count: 3, StateVersion: 7}
		}
		for _, c := range change {
			c(m.Durable)
		}
	}
}

// startDurable returns a client of a durable agent with a saved state; "": without one.
func startDurable(t *testing.T, handler Handler, state string, settings ...Option) (*instance, *peer) {
	t.Helper()
	i := startInstance(t, handler, settings...)
	return i, i.connect().ready(durableInit(state))
}

func (a answer) expectSave(t *testing.T, callID uint32, state, alarms string) {
	t.Helper()
	if a.kind != frameSave || len(a.payload) < saveHeadBytes {
		t.Fatalf("expected a SAVE, got type %d %q", a.kind, a.payload)
	}
	end := saveHeadBytes + binary.BigEndian.Uint32(a.payload[1:])
	got := string(a.payload[saveHeadBytes:end])
	if a.callID != callID || a.payload[0] != 0 || got != alarms || string(a.payload[end:]) != state {
		t.Fatalf("expected the SAVE %d %s %s, got %d %s %s", callID, alarms, state, a.callID, got, a.payload[end:])
	}
}

func (p *peer) ask(callID uint32, op string) {
	p.t.Helper()
	event, _ := json.Marshal(op)
	p.call(callID, string(event))
}

// greet returns the HELLO_OK of a new client.
func (i *instance) greet() helloOKMessage {
	i.t.Helper()
	w := i.dial()
	w.json(frameHello, 0, helloMessage{protocolVersion, testSecret, "another", "data", 0})
	var hello helloOKMessage
	if got := w.read(); got.kind != frameHelloOK || json.Unmarshal(got.payload, &hello) != nil {
		i.t.Fatalf("expected HELLO_OK, got type %d %q", got.kind, got.payload)
	}
	w.conn.conn.Close()
	return hello
}

func TestAChangedStateIsSentDirectlyBeforeTheAnswer(t *testing.T) {
	i, p := startDurable(t, count, "")
	for n := 1; n <= 3; n++ {
		p.ask(uint32(n), "a")
		p.data.read().expectSave(t, uint32(n), fmt.Sprintf(`{"n":%d,"log":["a"%s]}`, n, strings.Repeat(`,"a"`, n-1)), "")
		p.data.read().expectResult(t, fmt.Sprint(n))
	}
	if hello := i.greet(); hello.Durable != 1 || hello.StateVersion == nil || *hello.StateVersion != 3 {
		t.Fatalf("the greeting is %+v", hello)
	}
}

func TestASavedStateIsThereAtTheStart(t *testing.T) {
	_, p := startDurable(t, count, `{"log": ["x"], "n": 41}`)
	p.ask(1, "get")
	p.data.read().expectResult(t, `{"n":41,"log":["x"]}`)
	p.ask(2, "a")
	p.data.read().expectSave(t, 2, `{"n":42,"log":["x","a"]}`, "")
	p.data.read().expectResult(t, "42")
}

func TestACallThatFailsChangesNothing(t *testing.T) {
	for op, failure := range map[string]struct {
		code int
		text string
	}{
		"fail":                {codeHandler, "asked for"},
		"panic":               {codeHandler, "panic: asked for"},
		"not JSON":            {codeNotJSON, "context.state cannot be turned into JSON: json: unsupported value: NaN, at $.free.x"},
		"huge":                {codeTooLarge, "context.state has 2042 bytes, more than the limit of 1000"},
		"save huge":           {codeTooLarge, "more than the limit of 1000"},
		"fails with an alarm": {codeHandler, "asked for"},
	} {
		t.Run(op, func(t *testing.T) {
			_, p := startDurable(t, count, "")
			p.ask(1, "a")
			p.data.read().expectSave(t, 1, `{"n":1,"log":["a"]}`, "")
			p.data.read().expectResult(t, "1")
			p.ask(2, op)
			p.data.read().expectFailure(t, failure.code, failure.text)
			p.ask(3, "get")
			p.data.read().expectResult(t, `{"n":1,"log":["a"]}`)
			p.ask(4, "b")
			p.data.read().expectSave(t, 4, `{"n":2,"log":["a","b"]}`, "")
			p.data.read().expectResult(t, "2")
		})
	}
}

func TestACancelledCallChangesNothing(t *testing.T) {
	_, p := startDurable(t, count, "")
	p.ask(1, "hang")
	p.until(1, 0)
	p.control.json(frameCancel, 1, cancelMessage{reasonTimeout})
	p.data.read().expectFailure(t, codeTimeout, "timed out")
	p.ask(2, "a")
	p.data.read().expectSave(t, 2, `{"n":1,"log":["a"]}`, "")
	p.data.read().expectResult(t, "1")
}

func TestWhatSaveHasSavedStaysWhenTheCallFails(t *testing.T) {
	_, p := startDurable(t, count, "")
	p.ask(1, "save")
	p.data.read().expectSave(t, 0, `{"n":1,"log":["save"]}`, "")
	p.control.json(frameSaved, 0, map[string]int{"version": 1})
	p.data.read().expectFailure(t, codeHandler, "after the save")
	p.ask(2, "get")
	p.data.read().expectResult(t, `{"n":1,"log":["save"]}`)
}

func TestAChangeAfterASaveInTheSameCallIsSaved(t *testing.T) {
	long := strings.Repeat("x", comparedBytes)
	i := startInstance(t, func(ctx context.Context, _ json.RawMessage) (any, error) {
		state, err := State[map[string]string](ctx)
		if err != nil {
			return nil, err
		}
		(*state)["a"] = long
		err = FromContext(ctx).Save()
		(*state)["a"] += "y"
		return nil, err
	})
	p := i.connect().ready(durableInit("", func(m *durableMessage) { m.MaxStateBytes = 2 * comparedBytes }))
	p.call(1, "{}")
	p.data.read().expectSave(t, 0, `{"a":"`+long+`"}`, "")
	p.control.json(frameSaved, 0, map[string]int{"version": 1})
	p.data.read().expectSave(t, 1, `{"a":"`+long+`y"}`, "")
	p.data.read().expectResult(t, "null")
}

func TestASaveFailsWhenItsConnectionEnds(t *testing.T) {
	failure := make(chan error, 1)
	i := startInstance(t, func(ctx context.Context, _ json.RawMessage) (any, error) {
		state, err := State[counter](ctx)
		if err != nil {
			return nil, err
		}
		state.N++
		failure <- FromContext(ctx).Save()
		return nil, nil
	})
	p := i.connect().ready(durableInit(""))
	p.call(1, "{}")
	p.data.read().expectSave(t, 0, `{"n":1}`, "")
	p.data.conn.conn.Close()
	if err := receive(t, failure); !errors.Is(err, errNotAnswered) && !errors.Is(err, context.Canceled) {
		t.Fatalf("Save returned %v", err)
	}
	if hello := i.greet(); *hello.StateVersion != 1 {
		t.Fatalf("the version is %d", *hello.StateVersion)
	}
}

func TestACallThatChangesNothingSendsNoSave(t *testing.T) {
	i, p := startDurable(t, count, `{"n": 1,"unknown":true}`)
	for n := uint32(1); n <= 3; n++ {
		p.ask(n, "get")
		p.data.read().expectResult(t, `{"n":1}`)
	}
	if hello := i.greet(); *hello.StateVersion != 7 {
		t.Fatalf("the version is %d", *hello.StateVersion)
	}
}

func TestTheInitializerHasTheStateAndItsChangeIsSavedWithTheFirstCall(t *testing.T) {
	initialize := WithInitializer(func(ctx context.Context) error {
		c := FromContext(ctx)
		state, err := State[counter](ctx)
		if err != nil {
			return err
		}
		state.N += 10
		if !c.IsWaking() || c.Wake().Reason != "crash" || c.Wake().Count != 3 {
			return fmt.Errorf("woke by %+v", c.Wake())
		}
		if !errors.Is(c.Save(), errNotInCall) || !errors.Is(c.SetAlarm("a", After(0), nil), errNotInCall) {
			return errors.New("the initializer can save")
		}
		return nil
	})
	_, p := startDurable(t, count, `{"n":1}`, initialize)
	p.ask(1, "fail")
	p.data.read().expectFailure(t, codeHandler, "asked for")
	p.ask(2, "get")
	p.data.read().expectSave(t, 2, `{"n":11}`, "")
	p.data.read().expectResult(t, `{"n":11}`)
	p.ask(3, "get")
	p.data.read().expectResult(t, `{"n":11}`)
}

func TestTheFirstCallAfterAStartWithAStateIsWaking(t *testing.T) {
	isWaking := func(ctx context.Context, _ json.RawMessage) (any, error) { return FromContext(ctx).IsWaking(), nil }
	for state, first := range map[string]string{"": "false", "{}": "true"} {
		_, p := startDurable(t, isWaking, state)
		for n, expected := range []string{first, "false"} {
			p.call(uint32(n+1), "{}")
			p.data.read().expectResult(t, expected)
		}
	}
}

func TestAlarmsAreSentWithTheSaveOfTheirCall(t *testing.T) {
	_, p := startDurable(t, count, "")
	p.ask(1, "alarm")
	p.data.read().expectSave(t, 1, `{"n":1,"log":["alarm"]}`,
		`[{"name":"later","at":1234,"max_late_seconds":60,"payload":{"a":1}}]`)
	p.data.read().expectResult(t, "1")
	p.ask(2, "cancel")
	p.data.read().expectSave(t, 2, `{"n":2,"log":["alarm","cancel"]}`, `[{"name":"later"}]`)
	p.data.read().expectResult(t, "2")
	p.ask(3, "get")
	p.data.read().expectResult(t, `{"n":2,"log":["alarm","cancel"]}`)
}

func TestAlarmsListsWhatIsSetWithTheChangesOfTheCall(t *testing.T) {
	i := startInstance(t, func(ctx context.Context, _ json.RawMessage) (any, error) {
		c := FromContext(ctx)
		if err := c.CancelAlarm("later"); err != nil {
			return nil, err
		}
		return c.Alarms()
	})
	p := i.connect().ready(durableInit("", func(m *durableMessage) { m.ListsAlarms = true }))
	list := func(callID uint32, answer string) {
		p.call(callID, "{}")
		if got := p.data.read(); got.kind != frameAlarms || got.callID != 0 || string(got.payload) != `[{"name":"later"}]` {
			t.Fatalf("expected ALARMS, got type %d %q", got.kind, got.payload)
		}
		p.control.json(frameAlarmList, 0, json.RawMessage(answer))
	}
	alarm := `{"name":"a","id":"i","at":"2026-01-02T03:04:05.678Z","every":60,"payload":[1],"attempts":2,"missed":0,"failed":true,"last_error":"x"}`
	list(1, `{"alarms":[`+alarm+`]}`)
	p.data.read().expectSave(t, 1, "{}", `[{"name":"later"}]`)
	p.data.read().expectResult(t, "["+alarm+"]")
	list(2, `{"error":"cron or tz is wrong"}`)
	p.data.read().expectFailure(t, codeHandler, "cron or tz is wrong")
	old := startInstance(t, func(ctx context.Context, _ json.RawMessage) (any, error) { return FromContext(ctx).Alarms() })
	p = old.connect().ready(durableInit(""))
	p.call(1, "{}")
	p.data.read().expectFailure(t, codeHandler, "the service is of a release that cannot list alarms")
}

func TestAnAlarmThatCannotBeSetIsRefused(t *testing.T) {
	var c *Context
	_, p := startDurable(t, func(ctx context.Context, _ json.RawMessage) (any, error) {
		c = FromContext(ctx)
		for text, err := range map[string]error{
			"needs a time":                          c.SetAlarm("a", AlarmTime{}, nil),
			"at least 5s":                           c.SetAlarm("a", Every(time.Second), nil),
			"After needs":                           c.SetAlarm("a", After(-1), nil),
			"five fields":                           c.SetAlarm("a", Cron("", ""), nil),
			"MaxLate needs":                         c.SetAlarm("a", After(0).MaxLate(-1), nil),
			"1 to 128 characters":                   c.SetAlarm("", After(0), nil),
			"none a control character":              c.CancelAlarm("a\n"),
			"16386 bytes, more than the limit of":   c.SetAlarm("a", After(0), strings.Repeat("x", 16*1024)),
			"payload of an alarm cannot be turned ": c.SetAlarm("a", After(0), math.NaN()),
		} {
			if err == nil || !strings.Contains(err.Error(), text) {
				return nil, fmt.Errorf("expected %q, got %v", text, err)
			}
		}
		return nil, nil
	}, "")
	p.call(1, "{}")
	p.data.read().expectResult(t, "null")
	if err := c.SetAlarm("a", Every(5*time.Second), nil); !errors.Is(err, errCallEnded) {
		t.Fatalf("after the call SetAlarm returned %v", err)
	}
}

func TestEntriesRunInPlaceOfTheHandler(t *testing.T) {
	alarm := WithAlarm(func(ctx context.Context, alarm Alarm) (any, error) {
		state, err := State[counter](ctx)
		if err == nil {
			state.Log = append(state.Log, alarm.Name)
		}
		return []any{string(alarm.Payload), alarm.Attempt, alarm.ScheduledAt.UnixMilli()}, err
	})
	sleep := WithSleep(func(ctx context.Context) error {
		state, err := State[counter](ctx)
		if err == nil {
			state.N = -1
		}
		return err
	})
	p := startInstance(t, count, alarm, sleep).connect().ready(durableInit("", func(m *durableMessage) {
		m.Entries = durableEntries{"onAlarm", "onSleep"}
	}))
	event := `{"name":"tea","id":"i","payload":{"a":1},"scheduled_at":"1970-01-01T00:00:01.500Z","attempt":2,"missed":0}`
	p.call(1, event, func(h *callHeader) { h.Entry = entryAlarm })
	p.data.read().expectSave(t, 1, `{"n":0,"log":["tea"]}`, "")
	p.data.read().expectResult(t, `["{\"a\":1}",2,1500]`)
	p.call(2, "null", func(h *callHeader) { h.Entry = entrySleep })
	p.data.read().expectSave(t, 2, `{"n":-1,"log":["tea"]}`, "")
	p.data.read().expectResult(t, "null")
	p.ask(3, "get")
	p.data.read().expectResult(t, `{"n":-1,"log":["tea"]}`)
}

func TestAnEntryThatTheProgramLacksFailsTheStart(t *testing.T) {
	for text, entries := range map[string]durableEntries{
		"cannot load the alarm entry onAlarm: the program calls rookery.Start without rookery.WithAlarm": {Alarm: "onAlarm"},
		"cannot load the sleep entry onSleep: the program calls rookery.Start without rookery.WithSleep": {Sleep: "onSleep"},
	} {
		startInstance(t, count).connect().init(durableInit("", func(m *durableMessage) { m.Entries = entries })).
			expectFailure(t, codeLoad, text)
	}
}

func TestAnUnreadableStateFailsTheStart(t *testing.T) {
	for _, state := range []string{"{", "[]", "1"} {
		startInstance(t, count).connect().init(durableInit(state)).expectFailure(t, codeLoad, "the saved state cannot be read: ")
	}
}

func TestAStateThatDoesNotFitItsTypeFailsTheCallAndStays(t *testing.T) {
	_, p := startDurable(t, func(ctx context.Context, event json.RawMessage) (any, error) {
		if string(event) == "1" {
			return count(ctx, json.RawMessage(`"a"`))
		}
		state, err := State[map[string]any](ctx)
		if err == nil {
			_, err = State[counter](ctx)
		}
		return state, err
	}, `{"n":"text"}`)
	p.call(1, "1")
	p.data.read().expectFailure(t, codeHandler, "the saved state does not fit rookery.counter: json: cannot unmarshal string")
	p.call(2, "2")
	p.data.read().expectFailure(t, codeHandler, "the state is in use as a *map[string]interface {} and cannot be a *rookery.counter too")
}

type panicking struct{ Fails bool }

func (p *panicking) MarshalJSON() ([]byte, error) {
	if p.Fails {
		panic("asked for")
	}
	return []byte("{}"), nil
}

func TestAPanicOfAMarshalerFailsTheCallAndNothingElse(t *testing.T) {
	_, p := startDurable(t, func(ctx context.Context, event json.RawMessage) (any, error) {
		state, err := State[panicking](ctx)
		if err == nil {
			state.Fails = string(event) == "1"
		}
		return nil, err
	}, "")
	p.call(1, "1")
	p.data.read().expectFailure(t, codeNotJSON, "context.state cannot be turned into JSON: panic: asked for")
	p.call(2, "2")
	p.data.read().expectResult(t, "null")
}

func TestTheStateCannotBeUsedAfterItsCall(t *testing.T) {
	var kept context.Context
	_, p := startDurable(t, func(ctx context.Context, _ json.RawMessage) (any, error) {
		kept = ctx
		return nil, nil
	}, "")
	p.call(1, "{}")
	p.data.read().expectResult(t, "null")
	if _, err := State[counter](kept); !errors.Is(err, errCallEnded) {
		t.Fatalf("State returned %v", err)
	}
	if err := FromContext(kept).Save(); !errors.Is(err, errCallEnded) {
		t.Fatalf("Save returned %v", err)
	}
}

func TestAnAgentThatIsNotDurableKeepsItsStateInMemory(t *testing.T) {
	i := startInstance(t, count)
	p := i.connect().ready()
	for n := 1; n <= 2; n++ {
		p.ask(uint32(n), "a")
		p.data.read().expectResult(t, fmt.Sprint(n))
	}
	p.ask(3, "save")
	p.data.read().expectFailure(t, codeHandler, "this agent is not durable")
	p.ask(4, "alarm")
	p.data.read().expectFailure(t, codeHandler, "this agent is not durable")
	if hello := i.greet(); hello.Durable != 1 || hello.StateVersion != nil {
		t.Fatalf("the greeting is %+v", hello)
	}
}

func TestOutsideOfAnInstanceEachStateIsEmpty(t *testing.T) {
	for range 2 {
		if n, err := count(context.Background(), json.RawMessage(`"a"`)); err != nil || n != 1 {
			t.Fatalf("got %v, %v", n, err)
		}
	}
}

func TestKeepAwakeIsReportedUntilItsRelease(t *testing.T) {
	release := make(chan func(), 1)
	i, p := startDurable(t, func(ctx context.Context, _ json.RawMessage) (any, error) {
		c := FromContext(ctx)
		if _, err := c.KeepAwake(2 * time.Hour); err == nil {
			return nil, errors.New("2 h is allowed")
		}
		end, err := c.KeepAwake(time.Hour)
		release <- end
		return nil, err
	}, "")
	seconds := func() uint32 {
		got := p.data.read()
		if got.kind != frameKeepAwake || got.callID != 0 || len(got.payload) != 4 {
			t.Fatalf("expected KEEP_AWAKE, got type %d %q", got.kind, got.payload)
		}
		return binary.BigEndian.Uint32(got.payload)
	}
	p.call(1, "{}")
	if kept := seconds(); kept != 3600 {
		t.Fatalf("kept awake for %d s", kept)
	}
	p.data.read().expectResult(t, "null")
	if hello := i.greet(); hello.KeepAwakeSeconds == 0 || hello.KeepAwakeSeconds > 3600 {
		t.Fatalf("the greeting is %+v", hello)
	}
	end := receive(t, release)
	end()
	end()
	if kept := seconds(); kept != 0 {
		t.Fatalf("kept awake for %d s", kept)
	}
	p.call(2, "{}")
	seconds()
	p.data.read().expectResult(t, "null")
}

func TestASavedOfAnAgentThatIsNotDurableIsIgnored(t *testing.T) {
	p := startInstance(t, echo).connect().ready()
	p.control.json(frameSaved, 0, map[string]int{"version": 1})
	p.until(0, 0)
}
