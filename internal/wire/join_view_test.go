package wire

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

var joinViews = []JoinMessage{
	JoinView{Epoch: 1},
	JoinView{Epoch: 1 << 40, Nodes: []JoinNode{
		{ID: id16(1), Addrs: []string{"10.0.0.1:7000", "[::1]:7000"}, Host: "a", Name: "a:1"},
		{ID: id16(2)},
	}},
}

func TestJoinView(t *testing.T) {
	for _, m := range joinViews {
		checkJoinMessage(t, m)
	}
	node := JoinNode{Addrs: slices.Repeat([]string{strings.Repeat("a", addrBytesMax)}, addrsMax)}
	checkJoinRefused(t, errTooLong, JoinView{Nodes: slices.Repeat([]JoinNode{node}, 300)})
}

// A view of a thousand ordinary nodes fits.
func TestJoinViewOfAThousand(t *testing.T) {
	node := JoinNode{Addrs: []string{"192.168.100.200:65535", "10.100.200.250:65535"}, Host: "0123456789abcdef0123456789abcdef", Name: "a-longish-hostname-of-a-container:1234567"}
	if n := len(encodeJoin(t, JoinView{Epoch: 1, Nodes: slices.Repeat([]JoinNode{node}, 1000)})); n > JoinBytesMax/4 {
		t.Errorf("%d bytes, want a quarter of the limit at most", n)
	}
}

// The number of nodes is checked before there is room made for them.
func TestJoinViewDoesNotTrustItsCount(t *testing.T) {
	fields := []byte{0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff}
	if _, err := parseJoin(typeJoinView, fields); !errors.Is(err, errShort) {
		t.Errorf("error %v, want %v", err, errShort)
	}
	if n := testing.AllocsPerRun(10, func() { parseJoin(typeJoinView, fields) }); n > 10 {
		t.Errorf("%v allocations to refuse a count", n)
	}
}

func FuzzJoinView(f *testing.F) { fuzzJoin(f, joinViews...) }
