package trace

import (
	"log/slog"
	"slices"
)

// reported is how many operations a Report has at the most that are under way, and
// how many that have ended.
const reported = 4

// Report logs how a communicator has ended, with the last operations of this rank,
// if one of them fails by that: by the failure of a rank, a timeout, or calls that
// do not go together.
func Report(log *slog.Logger, how string, why error, operations []Operation) {
	if !slices.Contains([]string{PeerFailed, PeerLeft, Mismatch, Timeout}, how) {
		return
	}
	late := func(o Operation) bool { return o.UnderWay() }
	if how != Mismatch && !slices.ContainsFunc(operations, late) {
		return
	}
	last := Last(operations, reported)
	lines := make([]string, len(last))
	for i := range last {
		lines[i] = last[i].String()
	}
	log.Error("operations have failed", "because", how, "err", why, "last", lines)
}
