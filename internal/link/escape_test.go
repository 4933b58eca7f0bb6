package link

import (
	"testing"

	"github.com/nexar-go/nexar/internal/wire"
)

// Texts of a peer are escaped before they reach the handler.
func TestTextsOfAPeerAreEscaped(t *testing.T) {
	const hostile, want = "\x1b[31mred\n\xff", `\x1b[31mred\n\xff`
	texts := make(chan string, 2)
	hb := newHandler()
	hb.revoke = func(_ wire.Revoke, text string) { texts <- text }
	hb.failed = func(_ wire.Failed, text string) { texts <- text }
	a, _ := pair(t, newHandler(), hb, nil)
	a.Revoke(wire.Revoke{Comm: 1, Cause: wire.CauseCancelled}, hostile)
	a.Failed(wire.Failed{Epoch: 1}, hostile)
	for _, frame := range []string{"Revoke", "Failed"} {
		soon(t, frame, func() {
			if got := <-texts; got != want {
				t.Errorf("%s: text %q, want %q", frame, got, want)
			}
		})
	}
}
