package host

import (
	"net/netip"
	"slices"
	"testing"
)

// TestAddrs: a specified host is the only address; otherwise the result has routable
// addresses with the same port.
func TestAddrs(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:7", "[fd00::1]:7", "a.example:7"} {
		if got := Addrs(addr); !slices.Equal(got, []string{addr}) {
			t.Errorf("%s: got %q", addr, got)
		}
	}
	if got := Addrs("no port"); got != nil {
		t.Errorf("no port: got %q", got)
	}
	for _, addr := range []string{":7000", "0.0.0.0:7000", "[::]:7000"} {
		for _, got := range Addrs(addr) {
			a, err := netip.ParseAddrPort(got)
			if err != nil || a.Port() != 7000 || a.Addr().IsLoopback() || a.Addr().IsUnspecified() {
				t.Errorf("%s: got %q (%v)", addr, got, err)
			}
		}
	}
}

func TestIsAddr(t *testing.T) {
	for addr, want := range map[string][2]bool{ // with zero, and without
		"host:7000": {true, true}, "10.0.0.1:1": {true, true}, "[::1]:7000": {true, true},
		":7000": {true, false}, "host:0": {true, false}, ":0": {true, false},
		"": {}, "host": {}, "host:": {}, "host:port": {}, "host:65536": {}, "host:-1": {}, "::1:7000": {},
		"[a:b]:7000": {}, "a b:7000": {}, "http://host:7000": {}, "user@host:7000": {},
		"\x1b[31m:7000": {}, "a\nb:7000": {}, "\xff:7000": {}, "[fe80::1%\x1b]:7000": {}, "h\u00f6st:7000": {}, "[fe80::1%eth0]:7000": {true, true},
	} {
		if got := [...]bool{IsAddr(addr, true), IsAddr(addr, false)}; got != want {
			t.Errorf("%q: got %v, want %v", addr, got, want)
		}
	}
}

// TestReachable: an address with a specified host is returned unchanged.
func TestReachable(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:7000", "[::1]:7000", "10.0.0.1:7000", "a.example:7000", "nonsense"} {
		if got := Reachable(addr); got != addr {
			t.Errorf("Reachable(%q) = %q", addr, got)
		}
	}
	for _, addr := range []string{"0.0.0.0:7000", "[::]:7000"} {
		got, err := netip.ParseAddrPort(Reachable(addr))
		if err != nil || got.Addr().IsUnspecified() || got.Port() != 7000 {
			t.Errorf("Reachable(%q) = %q (%v)", addr, Reachable(addr), err)
		}
	}
}

func TestLeads(t *testing.T) {
	for _, test := range []struct {
		addr, listen string
		want         bool
	}{
		{"127.0.0.1:7000", "127.0.0.1:7000", true},
		{"127.0.0.1:7000", "[::]:7000", true},
		{"localhost:7000", "0.0.0.0:7000", true},
		{"127.0.0.1:7000", "127.0.0.1:7001", false},
		{"127.0.0.2:7000", "127.0.0.1:7000", false},
		{"192.0.2.1:7000", "[::]:7000", false},
		{"nowhere.invalid:7000", "[::]:7000", false},
		{"7000", "[::]:7000", false},
		{"127.0.0.1:7000", "", false},
	} {
		if got := Leads(test.addr, test.listen); got != test.want {
			t.Errorf("%s leads to %s: %v", test.addr, test.listen, got)
		}
	}
}

func TestWithPort(t *testing.T) {
	for addr, want := range map[string]string{
		"": "", "seed": "seed:7946", "seed.example": "seed.example:7946", "10.0.0.1": "10.0.0.1:7946", "0.0.0.0": "0.0.0.0:7946",
		"[fd00::1]": "[fd00::1]:7946", "[fe80::1%eth0]": "[fe80::1%eth0]:7946", "fd00::1": "fd00::1", "fd00::1:7946": "fd00::1:7946",
		"seed:1": "seed:1", ":1": ":1", "[fd00::1]:1": "[fd00::1]:1", "unix=@seed": "unix=@seed", "seed:": "seed:", "a:b:c": "a:b:c",
	} {
		if got := WithPort(addr, SeedPort); got != want {
			t.Errorf("%q: got %q, want %q", addr, got, want)
		}
	}
}
