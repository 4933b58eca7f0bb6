//race:none it starts no goroutine

package host

import (
	"net"
	"testing"
)

// TestID: the ID does not change between calls.
func TestID(t *testing.T) {
	id := ID()
	if id == "" {
		t.Fatal("the host has no id")
	}
	for range 3 {
		if again := ID(); again != id {
			t.Errorf("ID() = %q, then %q", id, again)
		}
	}
}

// TestHostOf: the ID depends on the name and the interfaces of the host, not on the order of the
// interfaces.
func TestHostOf(t *testing.T) {
	card := func(last byte) net.Interface {
		return net.Interface{HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, last}}
	}
	loopback := net.Interface{Name: "lo"}
	id := hostOf("a", []net.Interface{loopback, card(1), card(2)})
	if same := hostOf("a", []net.Interface{card(2), card(1)}); same != id {
		t.Errorf("ID %q, with interfaces in another order %q", id, same)
	}
	for what, other := range map[string]string{
		"another name": hostOf("b", []net.Interface{card(1), card(2)}),
		"another card": hostOf("a", []net.Interface{card(1), card(3)}),
		"no name":      hostOf("", []net.Interface{card(1), card(2)}),
	} {
		if other == id || other == "" {
			t.Errorf("%s: ID %q, want neither \"\" nor %q", what, other, id)
		}
	}
	if id := hostOf("", []net.Interface{loopback}); id != "" {
		t.Errorf("without name and hardware address: ID %q, want \"\"", id)
	}
}

// TestMachine: containers with different network namespaces are on the same machine.
func TestMachine(t *testing.T) {
	boot := "3a0f5e6c-5e9c-4b0c-8f6e-0d6a1c9b7e11"
	if got := Machine(boot + "/net:[4026531840]"); got != boot {
		t.Errorf("the machine is %q, want %q", got, boot)
	}
	for _, id := range []string{"", "name/0102030405060708", boot} {
		if got := Machine(id); got != id {
			t.Errorf("the machine of %q is %q, want the same", id, got)
		}
	}
}
