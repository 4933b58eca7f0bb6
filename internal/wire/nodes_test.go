package wire

import (
	"fmt"
	"reflect"
	"testing"

	"github.com/nexar-go/nexar/internal/membership"
)

// plainNodes decodes a list of nodes field by field, without shared values.
func plainNodes(c *codec) (list []membership.Node) {
	var n uint32
	if c.u32(&n); uint64(n)*nodeBytesMin > uint64(len(c.b)) {
		c.fail(errShort)
	}
	for i := uint32(0); i < n && c.err == nil; i++ {
		var node membership.Node
		c.id((*[16]byte)(&node.ID))
		c.addrs(&node.Addrs)
		c.name(&node.Host, nameBytesMax)
		c.name(&node.Name, nameBytesMax)
		c.endpoints(&node.Endpoints)
		list = append(list, node)
	}
	return list
}

// checkNodes decodes nodes with and without shared values. Both have the same result, error and rest.
func checkNodes(t *testing.T, b []byte) {
	t.Helper()
	plain, shared := codec{decoder: decoder{b: b}}, codec{decoder: decoder{b: b}}
	want := plainNodes(&plain)
	var got []membership.Node
	shared.nodes(&got)
	if (plain.err == nil) != (shared.err == nil) || plain.err != nil && plain.err.Error() != shared.err.Error() {
		t.Fatalf("error %v, want %v", shared.err, plain.err)
	}
	if plain.err != nil {
		return
	}
	if len(plain.b) != len(shared.b) {
		t.Errorf("%d bytes remain, want %d", len(shared.b), len(plain.b))
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("nodes %+v, want %+v", got, want)
	}
}

// FuzzNodes: nodes with equal fields are decoded as without sharing.
func FuzzNodes(f *testing.F) {
	f.Add([]byte(nil))
	for _, m := range joinViews {
		c := codec{encoding: true}
		v := m.(JoinView)
		c.nodes(&v.Nodes)
		f.Add(c.b)
	}
	local := []membership.Endpoint{{Transport: "shm"}, {Transport: "tcp", Addr: ":7"}}
	for _, hosts := range [][]string{{"a", "a", "a"}, {"a", "ab", "a"}, {"", "", "a", "a", ""}, {"\x7f", "\x7f"}} {
		var nodes []membership.Node
		for i, host := range hosts {
			nodes = append(nodes, membership.Node{ID: id16(byte(i)), Addrs: []string{"h:1"}, Host: host, Name: fmt.Sprint(host, i), Endpoints: local[:i%3]})
		}
		c := codec{encoding: true}
		c.nodes(&nodes)
		f.Add(c.b)
	}
	f.Fuzz(checkNodes)
}
