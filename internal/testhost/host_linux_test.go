//race:none tests of other packages use it with goroutines

package testhost

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestHosts: hosts can reach each other by both families, and share no interface.
func TestHosts(t *testing.T) {
	n := New(t, 2, IPv4|IPv6)
	for _, addr := range []string{n.Hosts[1].V4.String(), n.Hosts[1].V6.String()} {
		if out := n.Hosts[0].Run("ip", "route", "get", addr); !strings.Contains(out, "dev eth0") {
			t.Errorf("the route to %s does not use eth0:\n%s", addr, out)
		}
	}
	if _, err := n.Hosts[0].Try("", "ip", "link", "show", "br0"); err == nil {
		t.Error("a host has the interface of the bridge")
	}
	if got, want := n.Hosts[1].Addr(), n.Hosts[1].V4; got != want {
		t.Errorf("the address of a host is %v, want %v", got, want)
	}
}
