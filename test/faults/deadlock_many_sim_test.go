package faults

import (
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testlog"
)

// TestManyInADeadlock: 127 ranks of a process wait for the last one, which waits for the first. All get the error as soon as two ranks would, and
// the log has a few lines, not some of each rank.
func TestManyInADeadlock(t *testing.T) {
	require.NoRace(t, "it repeats other tests with many ranks")
	const n = 128
	stalledLocal(t, n, nexar.Config{}, func(t *testing.T, comms world, log *testlog.Buffer) {
		began := time.Now()
		var waiting sync.WaitGroup
		for rank, c := range comms {
			waiting.Go(func() {
				from := n - 1
				if rank == n-1 {
					from = 0
				}
				_, err := nexar.Recv(t.Context(), c, make([]byte, 1), from, 5)
				if _, ok := errors.AsType[*nexar.DeadlockError](err); !ok || len(err.Error()) > 4<<10 {
					t.Errorf("rank %d: error %v, want a deadlock in at most 4 KiB", rank, err)
				}
				if took := time.Since(began); took > 65*time.Second {
					t.Errorf("rank %d: the error comes after %v, want about a minute", rank, took)
				}
			})
		}
		waiting.Wait()
		text := log.String()
		// What a rank knows of another one is up to a query old.
		if !regexp.MustCompile(`which has been in recv from rank 0 for (9|10) s: a deadlock`).MatchString(text) {
			t.Errorf("after 10 s the log has no sentence:\n%s", text)
		}
		if lines := strings.Count(text, "\n"); lines > 5 {
			t.Errorf("%d lines in the log, want at most 5:\n%.3000s", lines, text)
		}
	})
}
