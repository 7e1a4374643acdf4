package rookery

// Keeps a durable agent awake while code waits outside of a call.

import (
	"encoding/binary"
	"errors"
	"math"
	"sync"
	"time"
)

const (
	leastAwake   = time.Second
	longestAwake = time.Hour
)

// awake holds the ends of the times for which code keeps the agent awake.
type awake struct {
	awakeLock sync.Mutex
	ends      map[*time.Time]struct{}
	// Returns the data connections. It acquires the server's lock.
	connections func() []*connection
}

// KeepAwake keeps the agent awake until release is called, for 1 s to 1 h at most. Use it for work that
// continues after the call and only waits, for example for another service.
func (c *Context) KeepAwake(limit time.Duration) (release func(), err error) {
	d := c.facts.durable
	if d == nil {
		return nil, errNotDurable
	}
	if limit < leastAwake || limit > longestAwake {
		return nil, errors.New("KeepAwake needs a duration of 1 s to 1 h")
	}
	end := time.Now().Add(limit)
	d.awake.update(func(ends map[*time.Time]struct{}) { ends[&end] = struct{}{} })
	return sync.OnceFunc(func() {
		d.awake.update(func(ends map[*time.Time]struct{}) { delete(ends, &end) })
	}), nil
}

// update changes the ends and reports the result to the service. Without a connection the next greeting
// reports it.
func (a *awake) update(change func(ends map[*time.Time]struct{})) {
	a.awakeLock.Lock()
	if a.ends == nil {
		a.ends = map[*time.Time]struct{}{}
	}
	change(a.ends)
	a.awakeLock.Unlock()
	connections := a.connections()
	a.awakeLock.Lock()
	defer a.awakeLock.Unlock()
	for _, conn := range connections {
		conn.send(encodeFrame(frameKeepAwake, 0, binary.BigEndian.AppendUint32(nil, a.seconds())))
	}
}

// keptSeconds returns for how long code keeps the agent awake from now on; 0: it does not.
func (a *awake) keptSeconds() uint32 {
	a.awakeLock.Lock()
	defer a.awakeLock.Unlock()
	return a.seconds()
}

// seconds returns keptSeconds. The caller holds the lock.
func (a *awake) seconds() uint32 {
	longest := 0.0
	for end := range a.ends {
		longest = max(longest, math.Ceil(time.Until(*end).Seconds()))
	}
	return uint32(longest)
}
