package trace

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

func TestReport(t *testing.T) {
	idle := []Operation{ended(reduction(6, 0), OK)}
	busy := append([]Operation{late(reduction(7, 7), 2)}, idle...)
	for name, test := range map[string]struct {
		how  string
		list []Operation
		want bool
	}{
		"a failure":           {PeerFailed, busy, true},
		"a timeout":           {Timeout, busy, true},
		"a rank that left":    {PeerLeft, busy, true},
		"a mismatch":          {Mismatch, idle, true},
		"nothing fails by it": {PeerFailed, idle, false},
		"cancelled":           {Cancelled, busy, false},
		"cancelled elsewhere": {Revoked, busy, false},
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
