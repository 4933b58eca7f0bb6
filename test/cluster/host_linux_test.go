package cluster

import (
	"net/netip"
	"os/exec"
	"testing"

	"github.com/nexar-go/nexar/internal/testhost"
)

// A host is a testhost.Host that runs workers.
type host struct {
	*testhost.Host
	v4, v6 netip.Addr
}

// A network has hosts on a bridge.
type network struct {
	t     *testing.T
	hosts []*host
}

// A family selects the address families of the hosts of a network.
type family = testhost.Family

const (
	ipv4 = testhost.IPv4
	ipv6 = testhost.IPv6
)

// newNetwork makes n hosts, 10.77.0.1 and fd77::1 onwards.
func newNetwork(t *testing.T, n int, have family) *network {
	t.Helper()
	w := &network{t: t}
	for _, h := range testhost.New(t, n, have).Hosts {
		w.hosts = append(w.hosts, &host{Host: h, v4: h.V4, v6: h.V6})
	}
	return w
}

func (h *host) start(cmd *exec.Cmd) error { return h.Start(cmd) }

func (h *host) run(name string, args ...string) string { return h.Run(name, args...) }

func (h *host) try(input, name string, args ...string) (string, error) {
	return h.Try(input, name, args...)
}
