package admission

import (
	"cmp"
	"slices"
	"time"
)

// Limits are the bounds of a Table. Zero fields mean the defaults.
type Limits struct {
	// Max is the maximum number of unproved connections. Default 512.
	Max int

	// Burst is the number of connections of a source that may fail, by ending without a proof,
	// before the source is limited to one connection per Interval. Each proof cancels two
	// failures, and so does the time of two Intervals. Default half of Max, at least 256 and at most 1,024.
	Burst int

	// Interval is the time that cancels one failure. Default 100 ms.
	Interval time.Duration

	// MinAge is the age before which a connection is not evicted, unless its source has at
	// least twice as many connections as the source of the new one. Most honest peers
	// authenticate themselves within it. Default one second.
	MinAge time.Duration
}

func (l Limits) withDefaults() Limits {
	places := cmp.Or(l.Max, 512)
	return Limits{
		Max:      places,
		Burst:    cmp.Or(l.Burst, min(max(256, places/2), 1024)),
		Interval: cmp.Or(l.Interval, 100*time.Millisecond),
		MinAge:   cmp.Or(l.MinAge, time.Second),
	}
}

// proofForgives is the number of failures that a proof of the source cancels. It is more than
// one, so that the nodes of a large cluster behind one address recover from failures under load
// as fast as they authenticate themselves.
const proofForgives = 2

// idleMax is the maximum number of sources without connections that a Table keeps because of
// their failures. Above it the Table drops the source with the fewest failures.
const idleMax = 1024

// A Table holds the unproved connections, at most [Limits.Max] of them.
//
// A new connection is admitted as long as there is room. Otherwise it evicts the oldest
// connection of the source with the most connections, so that a source that floods
// evicts its own, and a source with few connections loses none. A source with
// [Limits.Burst] failed connections is refused even if there is room: within
// any time, Max + Burst of its connections can fail, and one more per [Limits.Interval].
//
// Memory: a Table keeps Max connections, and a small entry for each source that
// has a connection and for up to 1,024 other sources.
type Table struct {
	limits  Limits
	sources map[Source]*source
	conns   int
	idle    int    // sources without connections
	serial  uint64 // of the last connection
}

type source struct {
	key      Source
	conns    []*Conn // in order of admission
	failures int
	settled  time.Time // failures are cancelled up to this time
}

// A Conn is the entry of a connection in a Table.
type Conn struct {
	source   *source
	since    time.Time
	serial   uint64 // in the order of admission
	verified bool
	evict    func() // for Gate
}

// An Outcome is the decision on a new connection.
type Outcome int

const (
	// Admitted says that the connection has an entry.
	Admitted Outcome = iota
	// Full says that the table is full, and that no connection may be evicted yet.
	Full
	// Limited says that too many connections of the source have failed.
	Limited
)

func (v Outcome) String() string {
	return [...]string{"admitted", "full", "limited"}[v]
}

// A Decision is the result of [Table.Admit].
type Decision struct {
	Outcome
	Conn    *Conn         // the entry of the connection, if Admitted
	Evicted *Conn         // the connection to close, or nil
	Wait    time.Duration // unless Admitted: the longest time before another attempt can succeed
}

// NewTable returns an empty Table.
func NewTable(l Limits) *Table {
	return &Table{limits: l.withDefaults(), sources: make(map[Source]*source)}
}

// Len returns the number of unproved connections.
func (t *Table) Len() int { return t.conns }

// Admit decides on a new connection. verified says that the peer receives packets at its
// address. Only failures of verified peers count: otherwise an attacker could have another host
// limited by forging its address.
func (t *Table) Admit(now time.Time, from Source, verified bool) Decision {
	s := t.sources[from]
	own := 0
	if s != nil {
		own = len(s.conns)
		if t.limited(now, s) {
			return Decision{Outcome: Limited, Wait: t.limits.Interval - now.Sub(s.settled)}
		}
	}
	var evicted *Conn
	if t.conns >= t.limits.Max {
		heaviest := t.heaviest()
		victim := heaviest.conns[0]
		age := now.Sub(victim.since)
		if age < t.limits.MinAge && len(heaviest.conns) < 2*(own+1) {
			return Decision{Outcome: Full, Wait: t.limits.MinAge - age}
		}
		t.Fail(now, victim)
		evicted = victim
	}
	if s = t.sources[from]; s == nil { // also if its only connection was evicted
		s = &source{key: from, settled: now}
		t.sources[from] = s
		t.idle++
	}
	if len(s.conns) == 0 {
		t.idle--
	}
	t.serial++
	c := &Conn{source: s, since: now, serial: t.serial, verified: verified}
	s.conns = append(s.conns, c)
	t.conns++
	return Decision{Conn: c, Evicted: evicted}
}

// Limited reports whether [Table.Admit] would limit a source now.
func (t *Table) Limited(now time.Time, from Source) bool {
	s := t.sources[from]
	return s != nil && t.limited(now, s)
}

func (t *Table) limited(now time.Time, s *source) bool {
	s.forget(now, t.limits.Interval)
	return s.failures >= t.limits.Burst
}

// heaviest returns the source with the most connections; of several, the one with the
// oldest connection.
func (t *Table) heaviest() (most *source) {
	for _, s := range t.sources {
		switch {
		case len(s.conns) == 0:
		case most == nil, len(s.conns) > len(most.conns),
			len(s.conns) == len(most.conns) && s.conns[0].serial < most.conns[0].serial:
			most = s
		}
	}
	return most
}

// Verify records that the peer of a connection receives packets at its address.
func (t *Table) Verify(c *Conn) { c.verified = true }

// Prove removes the entry of a connection with an authenticated peer. It reports false if the
// connection was evicted or has ended before.
func (t *Table) Prove(now time.Time, c *Conn) bool {
	s := c.source
	if !t.remove(c) {
		return false
	}
	s.forget(now, t.limits.Interval)
	s.failures = max(s.failures-proofForgives, 0)
	t.sweep(now, s)
	return true
}

// Fail removes the entry of a connection that has ended without a proof. It reports
// false if it was removed before.
func (t *Table) Fail(now time.Time, c *Conn) bool {
	s := c.source
	if !t.remove(c) {
		return false
	}
	s.forget(now, t.limits.Interval)
	if c.verified {
		s.failures++
	}
	t.sweep(now, s)
	return true
}

func (t *Table) remove(c *Conn) bool {
	s := c.source
	i := slices.Index(s.conns, c)
	if i < 0 {
		return false
	}
	s.conns = slices.Delete(s.conns, i, i+1)
	t.conns--
	if len(s.conns) == 0 {
		t.idle++
	}
	return true
}

// sweep drops s if it has neither connections nor failures, and limits the number of sources
// without connections.
func (t *Table) sweep(now time.Time, s *source) {
	if len(s.conns) > 0 {
		return
	}
	if s.failures == 0 {
		t.drop(s)
	}
	if t.idle <= idleMax {
		return
	}
	var least *source
	for _, s := range t.sources {
		if len(s.conns) > 0 {
			continue
		}
		if s.forget(now, t.limits.Interval); s.failures == 0 {
			t.drop(s)
		} else if least == nil || s.compare(least) < 0 {
			least = s
		}
	}
	if t.idle > idleMax {
		t.drop(least)
	}
}

// drop removes a source without connections.
func (t *Table) drop(s *source) {
	delete(t.sources, s.key)
	t.idle--
}

// compare orders sources by importance: the least is dropped first.
func (s *source) compare(other *source) int {
	return cmp.Or(
		cmp.Compare(s.failures, other.failures),
		s.settled.Compare(other.settled),
		s.key.prefix.Addr().Compare(other.key.prefix.Addr()),
	)
}

// forget cancels one failure per interval.
func (s *source) forget(now time.Time, interval time.Duration) {
	if n := int(now.Sub(s.settled) / interval); n >= s.failures {
		s.failures, s.settled = 0, now
	} else if n > 0 {
		s.failures -= n
		s.settled = s.settled.Add(time.Duration(n) * interval)
	}
}
