package membership

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNodeIDText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var id NodeID
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		got, err := ParseNodeID(id.String())
		if err != nil || got != id {
			t.Fatalf("got %v (%v), want %v", got, err, id)
		}
		text, err := json.Marshal(map[NodeID]NodeID{id: id})
		if err != nil {
			t.Fatal(err)
		}
		back := map[NodeID]NodeID{}
		if err := json.Unmarshal(text, &back); err != nil || back[id] != id {
			t.Fatalf("got %v (%v), want %v", back, err, id)
		}
	})
}

func TestParseNodeIDRefuses(t *testing.T) {
	good := NodeID{0xab}.String()
	for _, s := range []string{"", "0", good[1:], good + "0", strings.ToUpper(good), strings.Repeat("x", 32), " " + good[1:]} {
		if id, err := ParseNodeID(s); err == nil {
			t.Errorf("%q parsed as %v", s, id)
		}
	}
	var id NodeID
	if err := id.UnmarshalText([]byte("zz")); err == nil {
		t.Error("UnmarshalText accepts zz")
	}
}

func TestNodeString(t *testing.T) {
	for _, test := range []struct {
		node Node
		want string
	}{
		{Node{Addrs: []string{"10.0.0.1:7000", "x:1"}, Name: "a:4711"}, "10.0.0.1:7000 (a:4711)"},
		{Node{ID: NodeID{0xab}, Addrs: []string{"10.0.0.1:7000"}}, "10.0.0.1:7000 (node ab000000)"},
		{Node{Name: "a:4711"}, "no address (a:4711)"},
	} {
		if got := test.node.String(); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

// A node on another host gets no loopback address.
func TestAddrsFrom(t *testing.T) {
	n := Node{Host: "a", Addrs: []string{"10.0.0.1:7", "127.0.0.1:7", "[::1]:7", "[fd00::1]:7", "localhost:7", "node.example:7"}}
	if got, want := n.AddrsFrom("b"), []string{"10.0.0.1:7", "[fd00::1]:7", "node.example:7"}; !reflect.DeepEqual(got, want) {
		t.Errorf("from another host: %v, want %v", got, want)
	}
	want := []string{"127.0.0.1:7", "[::1]:7", "localhost:7", "10.0.0.1:7", "[fd00::1]:7", "node.example:7"}
	if got := n.AddrsFrom("a"); !reflect.DeepEqual(got, want) {
		t.Errorf("from its own host: %v, want %v", got, want)
	}
}
