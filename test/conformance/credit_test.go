package conformance

import (
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestSendsWithoutReceiver: sends to a rank that receives nothing complete until their messages, and
// 64 bytes for each, exceed 1 MiB. After the rank has received some, this is at least 768 KiB: credit
// returns in parts of 256 KiB.
func TestSendsWithoutReceiver(t *testing.T) {
	const credit, charge = 1 << 20, 64
	for _, m := range []worldtest.Medium{worldtest.Mem(), worldtest.SHM(), worldtest.TCP(), worldtest.TLS(), worldtest.QUIC()} {
		t.Run(m.Name, func(t *testing.T) {
			m.Require(t)
			for _, size := range []int{1, 1 << 10, 64 << 10} {
				comms := m.Cluster(t, 2, nexar.Config{})
				most, least := credit/(size+charge), credit/4*3/(size+charge)
				if got := sendUnreceived(t, comms, size); got != most {
					t.Errorf("%d sends of %d bytes completed without a receiver, want %d", got, size, most)
				}
				deadline := time.Now().Add(time.Minute)
				for { // until credit has returned
					got := sendUnreceived(t, comms, size)
					if got > most || got < least && time.Now().After(deadline) {
						t.Fatalf("%d further sends of %d bytes completed without a receiver, want %d to %d", got, size, least, most)
					}
					if got >= least {
						break
					}
				}
			}
		})
	}
}

// sendUnreceived returns the number of sends of rank 0 that complete before one waits for rank 1,
// which then receives all messages.
func sendUnreceived(t *testing.T, comms []*nexar.Comm, size int) int {
	data := make([]byte, size)
	for sent := 0; ; sent++ {
		h := nexar.StartSend(t.Context(), comms[0], data, 1, 0)
		select {
		case <-h.Done():
			if err := h.Wait(); err != nil {
				t.Fatal(err)
			}
			continue
		default:
		}
		for range sent + 1 {
			if _, err := nexar.Recv(t.Context(), comms[1], data, 0, 0); err != nil {
				t.Fatal(err)
			}
		}
		if err := h.Wait(); err != nil {
			t.Fatal(err)
		}
		return sent
	}
}
