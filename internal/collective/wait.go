package collective

import (
	"fmt"
	"math"

	"github.com/nexar-go/nexar/internal/wire"
)

// DescribeWait describes the call of a wait without its rank: "send to rank 1 (8 MiB, tag 7)",
// "recv from any rank (any tag)", "all_reduce #7 (1024 × float32, sum)".
func DescribeWait(w *wire.Wait) string {
	if w.Kind == wire.WaitCollective {
		o := Describe(w.Call)
		return o.Call()
	}
	peer, tag := "any rank", "any tag"
	if !w.Any && len(w.Peers) > 0 {
		peer = fmt.Sprintf("rank %d", w.Peers[0].Rank)
	}
	if w.Tag >= 0 {
		tag = fmt.Sprintf("tag %d", w.Tag)
	}
	if w.Kind == wire.WaitSend {
		return fmt.Sprintf("send to %s (%s, %s)", peer, size(w.Call.Count), tag)
	}
	return fmt.Sprintf("%s from %s (%s)", WaitName(w), peer, tag)
}

// WaitName returns the name of the call of a wait, as in errors.
func WaitName(w *wire.Wait) string {
	switch w.Kind {
	case wire.WaitSend:
		return "send"
	case wire.WaitRecv:
		return "recv"
	case wire.WaitProbe:
		return "probe"
	}
	o := Describe(w.Call)
	return o.Op
}

// size formats a number of bytes: "8 MiB", "1.5 KiB".
func size(n uint64) string {
	for _, u := range []struct {
		name  string
		bytes float64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if v := float64(n) / u.bytes; v >= 1 {
			return fmt.Sprintf("%v %s", math.Round(10*v)/10, u.name)
		}
	}
	return fmt.Sprintf("%d bytes", n)
}
