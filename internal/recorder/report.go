package recorder

import (
	"log/slog"
	"slices"

	"github.com/nexar-go/nexar/trace"
)

// reportedMax bounds the running operations in a report, and the completed ones.
const reportedMax = 4

// Report logs the end of a communicator with the last operations of this rank, if one of them
// has failed because of it: by the failure of a rank, a timeout, or mismatched calls.
func Report(log *slog.Logger, outcome string, err error, operations []trace.Operation) {
	if !slices.Contains([]string{trace.PeerFailed, trace.PeerLeft, trace.Mismatch, trace.Timeout, trace.Deadlock}, outcome) {
		return
	}
	running := func(o trace.Operation) bool { return o.Running() }
	if outcome != trace.Mismatch && !slices.ContainsFunc(operations, running) {
		return
	}
	last := Last(operations, reportedMax)
	lines := make([]string, len(last))
	for i := range last {
		lines[i] = last[i].String()
	}
	log.Error("operations have failed", "because", outcome, "err", err, "last", lines)
}
