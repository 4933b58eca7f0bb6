package membership

import "time"

const (
	// holdoffMax bounds the delay before a failed candidate is invited again, which is invitePause at first and doubles with each failure.
	holdoffMax = 5 * time.Minute
	// holdoffKeep is how long failures count after the last one.
	holdoffKeep = 2 * holdoffMax
	// holdoffEntries bounds the nodes and origins that a holdoff remembers.
	holdoffEntries = 1024
)

// A holdoff delays candidates that have failed, by node and by origin. A new key makes
// a new node, but not a new origin. Other nodes may share an origin, so its first
// failure is ignored.
type holdoff struct {
	entries map[string]*failures
}

type failures struct {
	count int
	last  time.Time
}

func newHoldoff() *holdoff { return &holdoff{entries: make(map[string]*failures)} }

func nodeKey(id NodeID) string       { return "node " + id.String() }
func originKey(origin string) string { return "origin " + origin }
func backoff(failures int) time.Duration {
	if failures <= 0 {
		return 0
	}
	return min(invitePause<<min(failures-1, 20), holdoffMax)
}

// fail counts a failure of a node, and returns when it may try again.
func (h *holdoff) fail(now time.Time, id NodeID, origin string) time.Time {
	h.count(now, nodeKey(id))
	if origin != "" {
		h.count(now, originKey(origin))
	}
	return h.until(now, id, origin)
}

func (h *holdoff) count(now time.Time, key string) {
	f := h.get(now, key)
	if f == nil {
		if len(h.entries) >= holdoffEntries {
			h.dropOldest()
		}
		f = new(failures)
		h.entries[key] = f
	}
	f.count++
	f.last = now
}

// get returns the failures of a key that still count, or nil.
func (h *holdoff) get(now time.Time, key string) *failures {
	f := h.entries[key]
	if f != nil && now.Sub(f.last) > holdoffKeep {
		delete(h.entries, key)
		return nil
	}
	return f
}

func (h *holdoff) dropOldest() {
	oldest := ""
	for key, f := range h.entries {
		if o := h.entries[oldest]; o == nil || f.last.Before(o.last) || f.last.Equal(o.last) && key < oldest {
			oldest = key
		}
	}
	delete(h.entries, oldest)
}

// succeed records that a node has entered. Half of the failures of its origin remain, since
// another node there may have caused them.
func (h *holdoff) succeed(id NodeID, origin string) {
	delete(h.entries, nodeKey(id))
	if f := h.entries[originKey(origin)]; f != nil {
		if f.count /= 2; f.count == 0 {
			delete(h.entries, originKey(origin))
		}
	}
}

// until returns when a node may be invited; the zero time means at once.
func (h *holdoff) until(now time.Time, id NodeID, origin string) (at time.Time) {
	if f := h.get(now, nodeKey(id)); f != nil {
		at = f.last.Add(backoff(f.count))
	}
	if f := h.get(now, originKey(origin)); f != nil && f.count > 1 {
		if later := f.last.Add(backoff(f.count - 1)); later.After(at) {
			at = later
		}
	}
	return at
}

// isSuspect reports whether several candidates of an origin have failed recently.
func (h *holdoff) isSuspect(now time.Time, origin string) bool {
	f := h.get(now, originKey(origin))
	return f != nil && f.count > 1
}
