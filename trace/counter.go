package trace

import "time"

// A Counter counts the calls of an operation that have ended, over all communicators of the program with the same number of ranks, also
// those that are closed. The numbers begin at 0 when the node joins, and never decrease, except those of WaitedFor.
type Counter struct {
	Op     string `json:"op"`             // as in Operation; empty for all, in a brief snapshot
	Ranks  int    `json:"ranks"`          // of the communicators; 0 for calls of functions, which are counted together
	Plan   string `json:"plan,omitempty"` // algorithm and executor of the latest successful call
	Calls  uint64 `json:"calls"`
	Failed uint64 `json:"failed,omitzero"` // of Calls
	// Bytes counts the bytes of calls that have succeeded: those of vectors of this rank, of messages, or of arguments and results.
	Bytes uint64 `json:"bytes"`
	// Durations has the times of calls that have succeeded. A brief call takes less time than reading the clock would add noticeably
	// to, so every 64th of them is measured, and counts 64 times. Messages are not measured.
	Durations Durations `json:"durations,omitzero"`
	// Waited is the waiting time of calls for data of other ranks, in nanoseconds in JSON, also of running calls. It is sampled: every 20 ms or less often for collectives, every 250 ms for messages. Two calls at a time count twice.
	Waited time.Duration `json:"waited,omitzero"`
	// WaitedFor are the ranks of the world that calls have waited for longest, on communicators that are open, the longest time first. A
	// call that waits for more than WaitedForMax ranks adds to none of them.
	WaitedFor []RankTime `json:"waited_for,omitempty"`
}

// WaitedForMax is the maximum length of Counter.WaitedFor.
const WaitedForMax = 8

// A RankTime is a waiting time for a rank.
type RankTime struct {
	Rank int           `json:"rank"`
	Time time.Duration `json:"time"` // in nanoseconds in JSON
}

// Durations is a histogram of durations. Its buckets are those of a native histogram of Prometheus with schema 0.
type Durations struct {
	Sum time.Duration `json:"sum"` // in nanoseconds in JSON
	// Counts[i] is the number of durations of more than 2^(First+i-1) and at most 2^(First+i) seconds. First is at least DurationFirst; the
	// bucket DurationFirst has all shorter durations, too, and DurationLast all longer ones.
	First  int      `json:"first"`
	Counts []uint64 `json:"counts"`
}

// The indexes of the first and the last bucket of Durations, of 60 ns and 18 hours.
const (
	DurationFirst = -24
	DurationLast  = 16
)

// Count returns the number of durations.
func (d Durations) Count() (n uint64) {
	for _, c := range d.Counts {
		n += c
	}
	return n
}

// IsZero reports whether there are no durations.
func (d Durations) IsZero() bool { return len(d.Counts) == 0 }
