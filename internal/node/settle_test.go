package node

import (
	"testing"
	"time"
)

// TestSettleTimeout: a node waits for the links of newcomers no longer than for a silent
// peer, and others must not take it for the one that is late.
func TestSettleTimeout(t *testing.T) {
	for _, test := range []struct{ heartbeat, recovery, collective, want time.Duration }{
		{5 * time.Second, 30 * time.Second, 30 * time.Second, 5 * time.Second},
		{5 * time.Second, 4 * time.Second, 30 * time.Second, 2 * time.Second},
		{5 * time.Second, 30 * time.Second, 3 * time.Second, 1500 * time.Millisecond},
		{0, -1, 8 * time.Second, 4 * time.Second},
		{0, -1, -1, 0},
	} {
		cfg := Config{HeartbeatTimeout: test.heartbeat, RecoveryTimeout: test.recovery, CollectiveTimeout: test.collective}
		if got := cfg.settleTimeout(); got != test.want {
			t.Errorf("heartbeat %v, recovery %v, collective %v: got %v, want %v", test.heartbeat, test.recovery, test.collective, got, test.want)
		}
	}
}
