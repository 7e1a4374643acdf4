package rookery

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"sync"
	"time"
	"unicode/utf8"
)

// Limits of the spans of one call. They are those of callSpans in src/core/limits.ts.
const (
	maxSpans          = 128
	maxSpanName       = 128
	maxSpanAttributes = 16
	maxSpanKey        = 64
	maxSpanValue      = 256
	maxSpanChars      = 32768
	// Characters that a span costs in addition to its texts.
	spanChars = 32
)

// Span is a named part of a call, which the history of calls shows. All methods may be called from any
// goroutine, and do nothing above 128 spans, outside of a call, and after the answer.
type Span struct {
	list  *spanList
	index int
}

// spanKey is the key of the innermost Span in a context.Context.
type spanKey struct{}

// StartSpan starts a span. Spans that are started with the returned context are inside of it. End ends it.
//
//	ctx, span := rookery.StartSpan(ctx, "fetch")
//	defer span.End()
func StartSpan(ctx context.Context, name string) (context.Context, *Span) {
	current := FromContext(ctx).call
	if current == nil {
		return ctx, &Span{}
	}
	list := current.spanList()
	parent, _ := ctx.Value(spanKey{}).(*Span)
	span := list.start(name, parent)
	if span.list == nil {
		return ctx, span
	}
	return context.WithValue(ctx, spanKey{}, span), span
}

// Set sets an attribute: a text, a bool or a number. Any other value becomes the text that fmt prints.
func (s *Span) Set(name string, value any) {
	if s.list != nil {
		s.list.set(s.index, name, plainValue(value))
	}
}

// Fail marks the span as failed, unless err is nil.
func (s *Span) Fail(err error) {
	if s.list != nil && err != nil {
		text := cutText(err.Error(), maxSpanValue)
		s.list.change(s.index, func(record *spanRecord) { record.Error = &text })
	}
}

// End ends the span. Only the first call counts. A span that is not ended ends with its call.
func (s *Span) End() {
	if s.list != nil {
		now := time.Now()
		s.list.change(s.index, func(record *spanRecord) {
			if record.ended.IsZero() {
				record.ended = now
			}
		})
	}
}

type spanRecord struct {
	Name        string         `json:"name"`
	Parent      *int           `json:"parent,omitempty"`
	StartMicros int64          `json:"startMicros"`
	Micros      int64          `json:"micros"`
	Attributes  map[string]any `json:"attributes,omitempty"`
	Error       *string        `json:"error,omitempty"`

	started, ended time.Time
}

type spansMessage struct {
	Spans   []spanRecord `json:"spans"`
	Dropped int          `json:"dropped"`
}

// spanList holds the spans of one call.
type spanList struct {
	lock    sync.Mutex
	records []spanRecord
	chars   int
	dropped int
}

// start returns a span that starts now. It does nothing if the call has too many.
func (l *spanList) start(name string, parent *Span) *Span {
	name = cutText(name, maxSpanName)
	now := time.Now()
	l.lock.Lock()
	defer l.lock.Unlock()
	cost := utf8.RuneCountInString(name) + spanChars
	if len(l.records) >= maxSpans || l.chars+cost > maxSpanChars {
		l.dropped++
		return &Span{}
	}
	l.chars += cost
	record := spanRecord{Name: name, started: now}
	if parent != nil && parent.list == l {
		index := parent.index
		record.Parent = &index
	}
	l.records = append(l.records, record)
	return &Span{list: l, index: len(l.records) - 1}
}

func (l *spanList) set(index int, name string, value any) {
	l.lock.Lock()
	defer l.lock.Unlock()
	record := &l.records[index]
	known, exists := record.Attributes[name]
	cost := utf8.RuneCountInString(name) + utf8.RuneCountInString(fmt.Sprint(value))
	if exists {
		cost -= utf8.RuneCountInString(name) + utf8.RuneCountInString(fmt.Sprint(known))
	}
	isFull := !exists && len(record.Attributes) >= maxSpanAttributes
	if utf8.RuneCountInString(name) > maxSpanKey || isFull || l.chars+cost > maxSpanChars {
		l.dropped++
		return
	}
	l.chars += cost
	if record.Attributes == nil {
		record.Attributes = map[string]any{}
	}
	record.Attributes[name] = value
}

func (l *spanList) change(index int, change func(*spanRecord)) {
	l.lock.Lock()
	defer l.lock.Unlock()
	change(&l.records[index])
}

// frame returns the SPANS frame of a call whose handler began at began. Open spans end now.
func (l *spanList) frame(callID uint32, began time.Time) []byte {
	now := time.Now()
	l.lock.Lock()
	defer l.lock.Unlock()
	for index := range l.records {
		record := &l.records[index]
		if record.ended.IsZero() {
			record.ended = now
		}
		record.StartMicros = max(record.started.Sub(began).Microseconds(), 0)
		record.Micros = record.ended.Sub(record.started).Microseconds()
	}
	return encodeJSON(frameSpans, callID, spansMessage{l.records, l.dropped})
}

// plainValue returns a text, a bool or a number that JSON can express.
func plainValue(value any) any {
	switch plain := value.(type) {
	case bool, int, int8, int16, int32, uint8, uint16, uint32:
		return plain
	case int64:
		if plain > -1<<53 && plain < 1<<53 {
			return plain
		}
	case float64:
		if !math.IsNaN(plain) && !math.IsInf(plain, 0) {
			return plain
		}
	case string:
		return cutText(plain, maxSpanValue)
	case json.Number:
		return cutText(string(plain), maxSpanValue)
	}
	return cutText(fmt.Sprint(value), maxSpanValue)
}

// cutText returns at most count characters of a text.
func cutText(text string, count int) string {
	if len(text) <= count {
		return text
	}
	seen := 0
	for at := range text {
		if seen == count {
			return text[:at]
		}
		seen++
	}
	return text
}
