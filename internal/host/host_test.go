package host

import (
	"net"
	"testing"
)

// A host is the same each time it is asked for.
func TestID(t *testing.T) {
	id := ID()
	if id == "" {
		t.Fatal("the host has no id")
	}
	for range 3 {
		if again := ID(); again != id {
			t.Errorf("the host is %q, and then %q", id, again)
		}
	}
}

// Where the system has no name for a host, its own name and its interfaces
// make one, in whatever order they come.
func TestHostOf(t *testing.T) {
	card := func(last byte) net.Interface {
		return net.Interface{HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, last}}
	}
	loopback := net.Interface{Name: "lo"}
	id := hostOf("a", []net.Interface{loopback, card(1), card(2)})
	if same := hostOf("a", []net.Interface{card(2), card(1)}); same != id {
		t.Errorf("%q, and in another order %q", id, same)
	}
	for what, other := range map[string]string{
		"another name": hostOf("b", []net.Interface{card(1), card(2)}),
		"another card": hostOf("a", []net.Interface{card(1), card(3)}),
		"no name":      hostOf("", []net.Interface{card(1), card(2)}),
	} {
		if other == id || other == "" {
			t.Errorf("%s: %q, which is %q", what, other, id)
		}
	}
	if id := hostOf("", []net.Interface{loopback}); id != "" {
		t.Errorf("a host of which nothing is known is %q", id)
	}
}
