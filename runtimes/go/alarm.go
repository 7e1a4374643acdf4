package rookery

// Alarms, with which an agent calls itself later.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"
	"unicode"
	"unicode/utf8"
)

const (
	maxAlarmNameChars    = 128
	maxAlarmPayloadBytes = 16 * 1024
	leastEvery           = 5 * time.Second
)

// Alarm is an alarm that calls the agent.
type Alarm struct {
	Name string `json:"name"`
	// Stays the same when the alarm is delivered again.
	ID          string          `json:"id"`
	Payload     json.RawMessage `json:"payload"`
	ScheduledAt time.Time       `json:"scheduled_at"`
	FiredAt     time.Time       `json:"fired_at"`
	// 1 for the first delivery.
	Attempt int `json:"attempt"`
	// Number of earlier times for which a recurring alarm was not delivered.
	Missed int `json:"missed"`
}

// AlarmHandler gets alarms instead of the handler.
type AlarmHandler func(ctx context.Context, alarm Alarm) (any, error)

// handler returns the handler that decodes the alarm from its event.
func (h AlarmHandler) handler() Handler {
	return func(ctx context.Context, event json.RawMessage) (any, error) {
		var alarm Alarm
		if err := json.Unmarshal(event, &alarm); err != nil {
			return nil, fmt.Errorf("the alarm cannot be read: %w", err)
		}
		return h(ctx, alarm)
	}
}

// AlarmInfo is an alarm that is set. Its JSON is that of the API.
type AlarmInfo struct {
	Name string `json:"name"`
	ID   string `json:"id"`
	// The next regular time.
	At time.Time `json:"at"`
	// 0 for an alarm without an interval.
	EverySeconds float64 `json:"every,omitempty"`
	Cron         string  `json:"cron,omitempty"`
	TZ           string  `json:"tz,omitempty"`
	// nil if a late alarm is not dropped.
	MaxLateSeconds *float64        `json:"max_late_seconds,omitempty"`
	Payload        json.RawMessage `json:"payload"`
	// Failed deliveries of this time.
	Attempts int `json:"attempts"`
	// Time of the next attempt after a failed one; nil without one.
	RetryAt *time.Time `json:"retry_at,omitempty"`
	Missed  int        `json:"missed"`
	// True once all attempts have failed.
	HasFailed bool   `json:"failed"`
	LastError string `json:"last_error,omitempty"`
}

// AlarmTime is when an alarm calls the agent: At, After, Every or Cron.
type AlarmTime struct {
	fields alarmFields
	err    error
}

// alarmFields are the members of an alarm in a SAVE. With a name alone it cancels the alarm.
type alarmFields struct {
	Name           string          `json:"name"`
	At             *int64          `json:"at,omitempty"`
	Every          *float64        `json:"every,omitempty"`
	Cron           string          `json:"cron,omitempty"`
	TZ             string          `json:"tz,omitempty"`
	MaxLateSeconds *float64        `json:"max_late_seconds,omitempty"`
	Payload        json.RawMessage `json:"payload,omitempty"`
}

// At is a time, once. A past time is now.
func At(at time.Time) AlarmTime {
	millis := at.UnixMilli()
	return AlarmTime{fields: alarmFields{At: &millis}}
}

// After is the time after a duration from now on, once.
func After(duration time.Duration) AlarmTime {
	if duration < 0 {
		return AlarmTime{err: errors.New("After needs a duration of at least 0")}
	}
	return At(time.Now().Add(duration))
}

// Every is again and again after an interval of at least 5 s.
func Every(interval time.Duration) AlarmTime {
	if interval < leastEvery {
		return AlarmTime{err: fmt.Errorf("Every needs an interval of at least %s", leastEvery)}
	}
	seconds := interval.Seconds()
	return AlarmTime{fields: alarmFields{Every: &seconds}}
}

// Cron is the times of a cron expression with five fields, in a time zone such as "Europe/Berlin"; "" is UTC.
func Cron(expression, zone string) AlarmTime {
	if expression == "" {
		return AlarmTime{err: errors.New("Cron needs an expression with five fields")}
	}
	return AlarmTime{fields: alarmFields{Cron: expression, TZ: zone}}
}

// MaxLate returns the same time for an alarm that is dropped if it would be delivered later than this.
func (t AlarmTime) MaxLate(late time.Duration) AlarmTime {
	if late < 0 {
		t.err = errors.New("MaxLate needs a duration of at least 0")
	}
	seconds := late.Seconds()
	t.fields.MaxLateSeconds = &seconds
	return t
}

// SetAlarm calls the agent later, also if it sleeps then. The same name replaces an alarm that is set. The
// payload is converted to JSON of at most 16 KiB. The alarm is saved with the call, so a call that fails sets
// none.
func (c *Context) SetAlarm(name string, when AlarmTime, payload any) error {
	fields := when.fields
	if when.err == nil && fields.At == nil && fields.Every == nil && fields.Cron == "" {
		return errors.New("an alarm needs a time: At, After, Every or Cron")
	}
	if when.err != nil {
		return when.err
	}
	text, err := json.Marshal(payload)
	if err != nil {
		return fmt.Errorf("the payload of an alarm cannot be turned into JSON: %w", placed(err, payload))
	}
	if len(text) > maxAlarmPayloadBytes {
		return fmt.Errorf("the payload of an alarm has %d bytes, more than the limit of %d", len(text), maxAlarmPayloadBytes)
	}
	fields.Name, fields.Payload = name, text
	return c.changeAlarm(fields)
}

// CancelAlarm cancels an alarm, with the save of the call. Without an alarm of this name it does nothing.
func (c *Context) CancelAlarm(name string) error {
	return c.changeAlarm(alarmFields{Name: name})
}

// Alarms returns the alarms of this agent, by name, with what this call has set and cancelled. It fails if an
// alarm that the call has set is wrong.
func (c *Context) Alarms() ([]AlarmInfo, error) {
	d := c.facts.durable
	if d == nil {
		return nil, errNotDurable
	}
	if c.call == nil {
		return nil, errNotInCall
	}
	wait, err := d.requestAlarms(c.call)
	if err != nil {
		return nil, err
	}
	payload, err := wait.receive(c.call)
	if err != nil {
		return nil, err
	}
	var answer struct {
		Alarms []AlarmInfo `json:"alarms"`
		Error  string      `json:"error"`
	}
	if err := readMessage(payload, "ALARM_LIST", &answer); err != nil {
		return nil, err
	}
	if answer.Error != "" {
		return nil, errors.New(answer.Error)
	}
	return answer.Alarms, nil
}

// requestAlarms sends an ALARMS with the changes that are not saved yet.
func (d *durable) requestAlarms(c *call) (*answerWait, error) {
	if !d.listsAlarms {
		return nil, errors.New("the service is of a release that cannot list alarms")
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	if err := c.mayUseState(); err != nil {
		return nil, err
	}
	return d.send(c.conn, encodeFrame(frameAlarms, 0, d.alarmChanges()), frameAlarmList)
}

// alarmChanges returns the JSON of the changes that are not saved yet. The caller holds the lock.
func (d *durable) alarmChanges() []byte {
	changes := make([]json.RawMessage, 0, len(d.alarms))
	for _, alarm := range d.alarms {
		changes = append(changes, alarm)
	}
	text, err := json.Marshal(changes)
	if err != nil {
		panic("an alarm is not JSON: " + err.Error()) // each was encoded by changeAlarm
	}
	return text
}

func (c *Context) changeAlarm(fields alarmFields) error {
	d := c.facts.durable
	if d == nil {
		return errNotDurable
	}
	if c.call == nil {
		return errNotInCall
	}
	if !isAlarmName(fields.Name) {
		return fmt.Errorf("the name of an alarm must be a text of 1 to %d characters, none a control character", maxAlarmNameChars)
	}
	text, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	if c.isOver {
		return errCallEnded
	}
	d.alarms[fields.Name] = text
	return nil
}

func isAlarmName(name string) bool {
	if name == "" || !utf8.ValidString(name) || utf8.RuneCountInString(name) > maxAlarmNameChars {
		return false
	}
	for _, char := range name {
		if unicode.IsControl(char) {
			return false
		}
	}
	return true
}
