package server

import (
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
)

// TestHelloLimit: the time for a handshake grows with the world until nodes give their attempts up.
func TestHelloLimit(t *testing.T) {
	for _, test := range []struct {
		given time.Duration
		nodes int
		want  time.Duration
	}{
		{0, 1, 5 * time.Second}, {0, 250, 5 * time.Second}, {0, 400, 8 * time.Second}, {0, 500, 10 * time.Second},
		{0, 1_000_000, 10 * time.Second}, {time.Second, 1000, time.Second}, {time.Minute, 1, time.Minute},
	} {
		for _, durable := range []bool{false, true} {
			if got := limits(handshake.Limits{Hello: test.given}, durable, test.nodes).Hello; got != test.want {
				t.Errorf("Hello %v, %d nodes, durable %v: %v, want %v", test.given, test.nodes, durable, got, test.want)
			}
		}
	}
}
