package collective

import (
	"testing"

	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/wire"
)

func TestDescribeWait(t *testing.T) {
	from := []wire.WaitPeer{{Rank: 1}}
	for want, w := range map[string]wire.Wait{
		"send to rank 1 (8 MiB, tag 7)":   {Kind: wire.WaitSend, Peers: from, Tag: 7, Call: wire.Call{Count: 8 << 20}},
		"send to rank 1 (1.5 KiB, tag 0)": {Kind: wire.WaitSend, Peers: from, Call: wire.Call{Count: 1536}},
		"send to rank 1 (9 bytes, tag 0)": {Kind: wire.WaitSend, Peers: from, Call: wire.Call{Count: 9}},
		"recv from rank 1 (any tag)":      {Kind: wire.WaitRecv, Peers: from, Tag: -1},
		"recv from any rank (tag 3)":      {Kind: wire.WaitRecv, Peers: from, Any: true, Tag: 3},
		"probe from rank 1 (tag 3)":       {Kind: wire.WaitProbe, Peers: from, Tag: 3},
		"all_reduce #7 (4 × float32, sum)": {Kind: wire.WaitCollective, Call: wire.Call{
			Kind: uint8(plan.AllReduce), Seq: 7, Type: uint8(kernel.Float32), Op: uint8(kernel.Sum), Count: 4,
		}},
	} {
		if got := DescribeWait(&w); got != want {
			t.Errorf("DescribeWait(%+v) = %q, want %q", w, got, want)
		}
	}
}
