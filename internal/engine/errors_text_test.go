package engine

import (
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
)

// TestTimeoutText: the text has the sentence or, without one, the ranks.
func TestTimeoutText(t *testing.T) {
	call := wire.Call{Kind: uint8(plan.Barrier), Seq: 3}
	for want, e := range map[string]*TimeoutError{
		"barrier #3 timed out after 2s: Rank 0 waits":                    {Call: call, After: 2 * time.Second, Sentence: "Rank 0 waits"},
		"recv timed out after 2s, in its own part of the call":           {Message: "recv", After: 2 * time.Second},
		"barrier #3 timed out after 2s, waiting for rank 0 and 1 others": {Call: call, After: 2 * time.Second, Waiting: []Waiting{{Rank: p2p.Member{}}, {Rank: p2p.Member{}}}},
	} {
		if got := e.Error(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
