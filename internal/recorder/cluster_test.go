package recorder

import (
	"strings"
	"testing"

	"github.com/nexar-go/nexar/trace"
)

// A node cannot send the snapshot of another node, or control a terminal.
func TestAddNodeChecks(t *testing.T) {
	other, place, future, size := of(1), of(1), of(1), of(1)
	other.Node = of(0).Node
	place.Rank = 0
	future.Epoch = 9
	size.Size = 5
	for name, test := range map[string]struct {
		encoded []byte
		want    string
	}{
		"another node":  {Encode(other), "it is of node aaaa"},
		"another rank":  {Encode(place), "it is of rank 0 of 4"},
		"another world": {Encode(size), "it is of rank 1 of 5"},
		"another epoch": {Encode(future), "it is of epoch 9, and the world is in epoch 1"},
		"nothing":       {nil, "unexpected end of JSON"},
		"a command":     {[]byte("\x1b[2J"), "invalid character"},
		"hidden":        {[]byte(`{"node":"\u001b[2J","size":1}`), "not printable"},
		"too much":      {make([]byte, EncodedMax+1), "at most 32768 are allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &trace.Cluster{Formed: true, Epoch: 1, World: 4, Joined: 4}
			AddNode(c, trace.Node{Rank: 1, Node: of(1).Node, Name: "\x1b[2J", Addr: "\n"}, test.encoded)
			n := c.Nodes[0]
			if n.Snapshot != nil || !strings.Contains(n.Missing, "has sent an invalid snapshot: ") || !strings.Contains(n.Missing, test.want) {
				t.Errorf("got %+v, want that %s", n, test.want)
			}
			for _, text := range []string{n.Name, n.Addr, n.Missing} {
				if text != printable(text, textMax) {
					t.Errorf("%q is shown", text)
				}
			}
		})
	}
}

// Any snapshot that AddNode accepts is safe to print.
func FuzzAddNode(f *testing.F) {
	f.Add(Encode(of(1, late(reduction(7, 7), 2))))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, encoded []byte) {
		c := &trace.Cluster{Formed: true, Epoch: 1, World: 4, Joined: 4}
		AddNode(c, trace.Node{Rank: 1, Node: of(1).Node}, encoded)
		var b strings.Builder
		if _, err := c.WriteTo(&b); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(b.String()) {
			if line = strings.TrimSuffix(line, "\n"); line != printable(line, len(line)) {
				t.Errorf("shown is %q", line)
			}
		}
	})
}
