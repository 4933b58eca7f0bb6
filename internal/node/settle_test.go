package node

import (
	"testing"
	"time"
)

// TestSettleTimeout checks that a node waits for the links of new nodes no longer than for a
// silent peer, and not so long that other nodes report this node as late.
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
