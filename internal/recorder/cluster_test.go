package recorder

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
)

// A node cannot send the snapshot of another node, or control a terminal.
func TestAddNodeChecks(t *testing.T) {
	other, place, future, size, clock := of(1), of(1), of(1), of(1), of(1)
	other.Node = of(0).Node
	place.Rank = 0
	future.Epoch = 9
	size.Size = 5
	clock.Time = clock.Time.AddDate(-100, 0, 0)
	clock.Operations = nil
	for name, test := range map[string]struct {
		encoded []byte
		want    string
	}{
		"another node":  {Encode(other, wire.Full), "it is of node aaaa"},
		"another rank":  {Encode(place, wire.Full), "it is of rank 0 of 4"},
		"another world": {Encode(size, wire.Full), "it is of rank 1 of 5"},
		"another epoch": {Encode(future, wire.Full), "it is of epoch 9, and the world is in epoch 1"},
		"another time":  {Encode(clock, wire.Full), "its clock reads 1926-"},
		"nothing":       {nil, "unexpected end of JSON"},
		"a command":     {[]byte("\x1b[2J"), "invalid character"},
		"hidden":        {[]byte(`{"node":"\u001b[2J","size":1}`), "not printable"},
		"too much":      {make([]byte, EncodedMax+1), "at most 32768 are allowed"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &trace.Cluster{Formed: true, Epoch: 1, World: 4, Joined: 4, SeedTime: of(1).Time}
			AddNode(c, trace.Node{Rank: 1, Node: of(1).Node, Name: "\x1b[2J", Addr: "\n"}, test.encoded, time.Second)
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

// TestOffset: the offset of a clock is measured from the question and the answer, for all times of the clocks.
func TestOffset(t *testing.T) {
	s := of(1)
	c := &trace.Cluster{Formed: true, Epoch: 1, World: 4, Joined: 4, SeedTime: s.Time.Add(-24*time.Hour - 30*time.Millisecond)}
	AddNode(c, trace.Node{Rank: 1, Node: s.Node}, Encode(s, wire.Full), 20*time.Millisecond)
	if n := c.Nodes[0]; n.Offset != 24*time.Hour+20*time.Millisecond || n.OffsetError != 10*time.Millisecond {
		t.Errorf("offset %v, error %v", n.Offset, n.OffsetError)
	}
}

func TestChanges(t *testing.T) {
	want := []trace.Change{{Time: at(1), Epoch: 2, Size: 3, What: trace.Lost, Rank: 1, Name: "a:1", Why: "\x1b[2J"}, {Time: at(2), Epoch: 2, Size: 3, Rank: -1}}
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	if want[0].Why = "\uFFFD[2J"; !reflect.DeepEqual(Changes(b), want[:1]) {
		t.Errorf("got %+v, want %+v", Changes(b), want[:1])
	}
	if got := Changes([]byte("{")); got != nil {
		t.Errorf("got %+v", got)
	}
}

// Any snapshot that AddNode accepts is safe to print.
func FuzzAddNode(f *testing.F) {
	f.Add(Encode(of(1, late(reduction(7, 7), 2)), wire.Full))
	f.Add([]byte("{}"))
	f.Fuzz(func(t *testing.T, encoded []byte) {
		c := &trace.Cluster{Formed: true, Epoch: 1, World: 4, Joined: 4, SeedTime: of(1).Time}
		AddNode(c, trace.Node{Rank: 1, Node: of(1).Node}, encoded, time.Second)
		for _, f := range c.Findings() {
			if len(f.Text) > 1<<10 {
				t.Errorf("a finding of %d bytes: %q", len(f.Text), f.Text)
			}
		}
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
