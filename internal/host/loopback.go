package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// ErrLoopbackDown means that the loopback interface is down, as in a new network namespace: no process of this host reaches another one at a
// loopback address.
var ErrLoopbackDown = errors.New("the loopback interface is down: bring it up, on Linux by \"ip link set lo up\"")

// CheckLoopback returns [ErrLoopbackDown] if listen, host:port, is a loopback address and all loopback interfaces are down.
func CheckLoopback(listen string) error {
	name, _, err := net.SplitHostPort(listen)
	if ip, bad := netip.ParseAddr(name); err != nil || name != "localhost" && (bad != nil || !ip.IsLoopback()) {
		return nil //nolint:nilerr // the listener reports it
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil //nolint:nilerr // the dials show the fault
	}
	return loopbackState(listen, interfaces)
}

func loopbackState(listen string, interfaces []net.Interface) error {
	down := ""
	for _, i := range interfaces {
		switch {
		case i.Flags&net.FlagLoopback == 0:
		case i.Flags&net.FlagUp != 0:
			return nil
		default:
			down = i.Name
		}
	}
	if down == "" {
		return nil // This system does not list it.
	}
	return fmt.Errorf("listen at %s: %w (%s)", listen, ErrLoopbackDown, down)
}
