package host

import (
	"errors"
	"net"
	"testing"
)

// TestLoopbackState: an address of a loopback interface that is down cannot be used.
func TestLoopbackState(t *testing.T) {
	lo := net.Interface{Name: "lo", Flags: net.FlagLoopback}
	up := net.Interface{Name: "lo0", Flags: net.FlagLoopback | net.FlagUp}
	card := net.Interface{Name: "eth0", Flags: net.FlagUp}
	for name, test := range map[string]struct {
		interfaces []net.Interface
		isDown     bool
	}{
		"down":     {[]net.Interface{lo, card}, true},
		"up":       {[]net.Interface{up, card}, false},
		"one up":   {[]net.Interface{lo, up}, false},
		"unlisted": {[]net.Interface{card}, false},
	} {
		if err := loopbackState("127.0.0.1:0", test.interfaces); errors.Is(err, ErrLoopbackDown) != test.isDown {
			t.Errorf("%s: %v, want an error: %v", name, err, test.isDown)
		}
	}
	for _, listen := range []string{":0", "10.0.0.1:7946", "", "node.example:7946"} {
		if err := CheckLoopback(listen); err != nil {
			t.Errorf("%q: %v", listen, err)
		}
	}
}
