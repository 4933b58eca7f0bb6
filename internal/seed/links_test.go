package seed

import "testing"

// A node cannot choose its origin by another port, or by another address of its network.
func TestOriginOf(t *testing.T) {
	for observed, want := range map[string]string{
		"10.0.0.1:7000":               "10.0.0.1",
		"10.0.0.1:7001":               "10.0.0.1",
		"[2001:db8:1:2:3:4:5:6]:7000": "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff::1]:9":    "2001:db8:1:2::/64",
		"[::ffff:10.0.0.1]:7000":      "10.0.0.1",
		"[fe80::1%eth0]:7000":         "fe80::/64",
		"host.example:7000":           "host.example",
	} {
		if got := originOf(observed); got != want {
			t.Errorf("%s: got %q, want %q", observed, got, want)
		}
	}
}
