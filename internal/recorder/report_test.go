package recorder

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/trace"
)

func TestReport(t *testing.T) {
	idle := []trace.Operation{ended(reduction(6, 0), trace.OK)}
	busy := append([]trace.Operation{late(reduction(7, 7), 2)}, idle...)
	for name, test := range map[string]struct {
		how  string
		list []trace.Operation
		want bool
	}{
		"a failure":           {trace.PeerFailed, busy, true},
		"a timeout":           {trace.Timeout, busy, true},
		"a rank that left":    {trace.PeerLeft, busy, true},
		"a mismatch":          {trace.Mismatch, idle, true},
		"nothing fails by it": {trace.PeerFailed, idle, false},
		"cancelled":           {trace.Cancelled, busy, false},
		"cancelled elsewhere": {trace.Revoked, busy, false},
	} {
		var b bytes.Buffer
		Report(slog.New(slog.NewTextHandler(&b, nil)), test.how, errors.New("rank 2 is late"), test.list)
		got := b.String()
		if (got != "") != test.want {
			t.Errorf("%s: logged %q", name, got)
		}
		if len(test.list) > 1 && test.want && (!strings.Contains(got, "level=ERROR") || !strings.Contains(got, "waits for rank 2") || !strings.Contains(got, "all_reduce #6")) {
			t.Errorf("%s: logged %q", name, got)
		}
	}
}
