package worldtest

import (
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
)

func TestMain(m *testing.M) {
	Setup()
	goleak.VerifyTestMain(m)
}

// TestMedia: the ranks of each medium use the transport that it names.
func TestMedia(t *testing.T) {
	for _, test := range []struct {
		Medium
		transport string
		encrypted bool
	}{
		{Mem(), "mem", false},
		{QUIC(), "quic", true},
		{SHM(), "shm", false},
		{TLS(), "quic+tcp", true},
		{TCP(), "quic+tcp", false},
		{Mixed(), "mixed", false},
	} {
		t.Run(test.Name, func(t *testing.T) {
			test.Require(t)
			for _, c := range test.Cluster(t, 3, nexar.Config{}) {
				want, encrypted := test.transport, test.encrypted
				if test.Name == Mixed().Name && c.Rank() == 1 {
					want, encrypted = "quic+tcp", true // The two others are on the other host.
				}
				if c.Transport() != want || c.Encrypted() != encrypted {
					t.Errorf("rank %d: %s, encrypted: %v; want %s, %v", c.Rank(), c.Transport(), c.Encrypted(), want, encrypted)
				}
			}
		})
	}
}

// TestLinks: on demand, most links are pending until messages need them and again when they have been idle. Eager ranks are
// linked to all others.
func TestLinks(t *testing.T) {
	require.NoRace(t, "it repeats other tests over every medium")
	const n = 8
	total := func(w *World) (links int) {
		for rank := range n {
			links += w.Linked(rank)
		}
		return links
	}
	for _, medium := range []Medium{Sim(), QUIC(), TLS()} {
		t.Run(medium.OnDemand().Name, func(t *testing.T) {
			w := medium.OnDemand().World(t, n, nexar.Config{})
			for round := range 2 {
				for end := time.Now().Add(Patience); total(w) != 2*n; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("round %d: %d links, want those of the two watches of each of %d ranks", round, total(w), n)
					}
				}
				OnAll(t, w.Comms, func(rank int, c *nexar.Comm) error {
					dst, src := make([]int64, n), make([]int64, n)
					for to := range src {
						src[to] = int64(100*rank + to)
					}
					if err := nexar.AllToAll(t.Context(), c, dst, src); err != nil {
						return err
					}
					for from, x := range dst {
						if x != int64(100*from+rank) {
							return fmt.Errorf("got %d from rank %d, want %d", x, from, 100*from+rank)
						}
					}
					return nil
				})
			}
		})
		t.Run(medium.Eager().Name, func(t *testing.T) {
			w := medium.Eager().World(t, n, nexar.Config{})
			for end := time.Now().Add(Patience); total(w) != n*(n-1); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%d links, want %d", total(w), n*(n-1))
				}
			}
		})
	}
}
