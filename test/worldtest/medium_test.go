package worldtest

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar"
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
