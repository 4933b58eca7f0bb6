package conformance

import (
	"bytes"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestSendsWithoutReceiver: sends of short messages complete as long as the messages that the receiver
// has not received take at most 1 MiB, with 64 bytes for each; messages that it has received do not
// count. One goroutine makes all calls, so a send that waits for its receiver would hang.
func TestSendsWithoutReceiver(t *testing.T) {
	const credit, charge, rounds = 1 << 20, 64, 2
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.SHM(), worldtest.TCP(), worldtest.TLS(), worldtest.QUIC()) {
		t.Run(m.Name, func(t *testing.T) {
			m.Require(t)
			for _, size := range []int{0, 1 << 10, 64 << 10} {
				comms := m.Cluster(t, 2, nexar.Config{})
				message, got := make([]byte, size), make([]byte, size)
				for round := range rounds {
					count := credit / (size + charge)
					for i := range count {
						for k := range message {
							message[k] = byte(i + k)
						}
						if err := nexar.Send(t.Context(), comms[0], message, 1, nexar.Tag(i%3)); err != nil {
							t.Fatal(err)
						}
					}
					for tag := range nexar.Tag(3) {
						for i := int(tag); i < count; i += 3 {
							for k := range message {
								message[k] = byte(i + k)
							}
							s, err := nexar.Recv(t.Context(), comms[1], got, 0, tag)
							if err != nil || s.Count != size || !bytes.Equal(got, message) {
								t.Fatalf("%d bytes, round %d: message %d is %+v with error %v, or has wrong bytes", size, round, i, s, err)
							}
						}
					}
				}
			}
		})
	}
}
