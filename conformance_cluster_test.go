package nexar

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/negotiate"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
	"github.com/nexar-go/nexar/transport/quic"
	"github.com/nexar-go/nexar/transport/sim"
)

// patience is how long a test waits for what must come at once. It is long,
// because machines that run tests are slow at times.
const patience = 60 * time.Second

// A medium makes transports that reach each other.
type medium struct {
	name    string
	network cost.Network
	// listen returns the view of n nodes and the transport of each. What it
	// needs besides them is closed by end.
	listen func(n int) (view membership.View, list []transport.Transport, end func() error, err error)
}

var (
	overMem   = medium{"mem", cost.Local(), listenMem} // what Local makes
	overLinks = medium{"mem without areas", cost.Local(), listenLinks}
	overSim   = medium{"sim", cost.QUIC(), listenSim}
	overQUIC  = medium{"quic", cost.QUIC(), listenQUIC}
)

// cluster makes a world of n ranks, which is closed at the end of the test.
func (m medium) cluster(t testing.TB, n int, cfg Config) []*Comm {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	comms, closing, err := m.form(ctx, n, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := closing(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return comms
}

// form makes a world of n ranks, to be closed with the function it returns.
func (m medium) form(ctx context.Context, n int, cfg Config) (comms []*Comm, closing func() error, err error) {
	if cfg.CollectiveTimeout == 0 {
		cfg.CollectiveTimeout = 3 * patience
	}
	if cfg, err = cfg.fill(); err != nil {
		return nil, nil, err
	}
	view, transports, end, err := m.listen(n)
	if err != nil {
		return nil, nil, err
	}
	comms = make([]*Comm, n)
	closing = func() error {
		err := forEach(n, func(rank int) error {
			if comms[rank] == nil {
				return transports[rank].Close()
			}
			return comms[rank].Close()
		})
		// The testing package keeps what a test gave it until the parent of the test ends.
		clear(comms)
		clear(transports)
		return errors.Join(err, end())
	}
	err = forEach(n, func(rank int) (err error) {
		comms[rank], err = rankOver(ctx, pathsOf(transports[rank]), view, rank, m.network, cfg)
		return err
	})
	if err != nil {
		return nil, nil, errors.Join(err, closing())
	}
	return comms, closing, nil
}

// forEach calls f for each of n ranks, all at the same time.
func forEach(n int, f func(rank int) error) error {
	errs := make([]error, n)
	var ranks sync.WaitGroup
	for rank := range n {
		ranks.Go(func() {
			if err := f(rank); err != nil {
				errs[rank] = fmt.Errorf("rank %d of %d: %w", rank, n, err)
			}
		})
	}
	ranks.Wait()
	return errors.Join(errs...)
}

// onAll calls f for each rank, all at the same time, and fails the test with
// what any of them returns.
func onAll(t testing.TB, comms []*Comm, f func(rank int, c *Comm) error) {
	t.Helper()
	if err := forEach(len(comms), func(rank int) error { return f(rank, comms[rank]) }); err != nil {
		t.Fatal(err)
	}
}

// names gives n nodes their identities.
func names(n int) (view membership.View, keys []*pki.Key, err error) {
	view.Epoch = 7
	for rank := range n {
		key, err := pki.NewKey()
		if err != nil {
			return view, nil, err
		}
		keys = append(keys, key)
		view.Nodes = append(view.Nodes, membership.Node{
			ID: key.ID(), Addrs: []string{key.ID().String()}, Host: hostOf(rank), Name: fmt.Sprintf("test rank %d", rank),
		})
	}
	return view, keys, nil
}

// hostOf is the host that a rank is said to be on, so that plans can be tried that
// know hosts, some of which have more ranks than others.
func hostOf(rank int) string {
	return fmt.Sprint("host ", [...]int{0, 1, 0, 1, 1, 0, 2, 0, 2}[rank%9])
}

func listenMem(n int) (view membership.View, list []transport.Transport, end func() error, err error) {
	return listenWithin(n, negotiate.AreaSize())
}

// listenLinks makes what listenMem does without memory to share, so that all
// goes over links.
func listenLinks(n int) (view membership.View, list []transport.Transport, end func() error, err error) {
	return listenWithin(n, 0)
}

func listenWithin(n, areaSize int) (view membership.View, list []transport.Transport, end func() error, err error) {
	if view, _, err = names(n); err != nil {
		return view, nil, nil, err
	}
	network := mem.NewNetwork()
	network.Share(negotiate.Areas, areaSize)
	for _, node := range view.Nodes {
		tr, err := network.Listen(node.ID.String())
		if err != nil {
			return view, nil, nil, err
		}
		list = append(list, tr)
	}
	return view, list, func() error { return nil }, nil
}

// listenSim makes pipes of little room that take their time, some of which
// lose pieces, so that nothing can rely on buffers or on speed.
func listenSim(n int) (view membership.View, list []transport.Transport, end func() error, err error) {
	if view, _, err = names(n); err != nil {
		return view, nil, nil, err
	}
	network := sim.New(sim.Config{
		Seed: 1, Delay: 20 * time.Microsecond, Jitter: 50 * time.Microsecond, Loss: 0.002, Window: 32 << 10,
	})
	for _, node := range view.Nodes {
		tr, err := network.Host(node.ID.String()).Listen(simPort)
		if err != nil {
			return view, nil, nil, errors.Join(err, network.Close())
		}
		list = append(list, named{tr})
	}
	return view, list, network.Close, nil
}

const simPort = 7000

// simSuffix is what makes an address of package sim of the name of a host.
var simSuffix = fmt.Sprintf(":%d", simPort)

// A named transport is one over a simulated network, where the names of hosts
// are those of nodes.
type named struct{ transport.Transport }

func (n named) Dial(ctx context.Context, addr, peer string) (transport.Conn, error) {
	c, err := n.Transport.Dial(ctx, addr+simSuffix, peer+simSuffix)
	if err != nil {
		return nil, err
	}
	return namedConn{c}, nil
}

func (n named) Accept(ctx context.Context) (transport.Conn, error) {
	c, err := n.Transport.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return namedConn{c}, nil
}

type namedConn struct{ transport.Conn }

func (c namedConn) Peer() string { return strings.TrimSuffix(c.Conn.Peer(), simSuffix) }

// listenQUIC makes nodes with certificates on the loopback interface.
func listenQUIC(n int) (view membership.View, list []transport.Transport, end func() error, err error) {
	return listenAt(n, func(rank int, e *quic.Endpoint, identity *pki.Identity) ([]mesh.Path, error) { return nil, nil })
}

// listenAt is listenQUIC with further paths, which more makes.
func listenAt(n int, more func(rank int, e *quic.Endpoint, identity *pki.Identity) ([]mesh.Path, error)) (
	view membership.View, list []transport.Transport, end func() error, err error,
) {
	authority, err := pki.NewAuthority()
	if err != nil {
		return view, nil, nil, err
	}
	view, keys, err := names(n)
	if err != nil {
		return view, nil, nil, err
	}
	var endpoints []*quic.Endpoint
	end = func() error {
		var errs []error
		for _, e := range endpoints {
			errs = append(errs, e.Close())
		}
		return errors.Join(errs...)
	}
	for rank, key := range keys {
		identity, err := certify(authority, key)
		if err != nil {
			return view, nil, nil, errors.Join(err, end())
		}
		endpoint, err := quic.Listen(quic.Config{Addr: "127.0.0.1:0", IdleTimeout: patience})
		if err != nil {
			return view, nil, nil, errors.Join(err, end())
		}
		endpoints = append(endpoints, endpoint)
		paths, err := more(rank, endpoint, identity)
		if err != nil {
			return view, nil, nil, errors.Join(err, end())
		}
		tr, err := endpoint.Transport(identity)
		if err != nil {
			return view, nil, nil, errors.Join(err, end())
		}
		// Nodes do not look for others of another host under loopback addresses. In
		// this form they do not know it.
		at := netip.MustParseAddrPort(endpoint.Addr())
		view.Nodes[rank].Addrs = []string{netip.AddrPortFrom(netip.AddrFrom16(at.Addr().As16()), at.Port()).String()}
		list = append(list, roads{tr, append(paths, mesh.Path{Transport: tr, Encrypted: true})})
	}
	return view, list, end, nil
}

// certify makes the identity of a key in the cluster of an authority.
func certify(authority *pki.Authority, key *pki.Key) (*pki.Identity, error) {
	request, err := key.Request()
	if err != nil {
		return nil, err
	}
	cert, _, err := authority.Sign(request, 0)
	if err != nil {
		return nil, err
	}
	return pki.NewIdentity(key, cert, authority.Certificate())
}
