package worldtest

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/negotiate"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/mem"
	"github.com/nexar-go/nexar/transport/quic"
	"github.com/nexar-go/nexar/transport/shm"
	"github.com/nexar-go/nexar/transport/tcp"
)

// A nodeSet is the nodes of a world with their paths. The ranks close the transports of the paths; end closes
// everything else.
type nodeSet struct {
	view  membership.View
	paths [][]mesh.Path // by rank
	end   func() error
}

// A listener starts the transports of n nodes.
type listener func(n int) (nodeSet, error)

// listenEach returns n nodes with one path each.
func listenEach(n int, listen func(membership.Node) (mesh.Path, error)) (s nodeSet, err error) {
	if s.view, _, err = nodes(n); err != nil {
		return s, err
	}
	for _, node := range s.view.Nodes {
		p, err := listen(node)
		if err != nil {
			return s, err
		}
		s.paths = append(s.paths, []mesh.Path{p})
	}
	s.end = func() error { return nil }
	return s, nil
}

func listenMem(areaSize int) listener {
	return func(n int) (nodeSet, error) {
		network := mem.NewNetwork()
		network.Share(negotiate.Areas, areaSize)
		return listenEach(n, func(node membership.Node) (mesh.Path, error) {
			t, err := network.Listen(node.ID.String())
			return mesh.Path{Transport: t}, err
		})
	}
}

func listenSHM(areaSize int) listener {
	return func(n int) (nodeSet, error) {
		return listenEach(n, func(node membership.Node) (mesh.Path, error) { return withinHost("a host", node.ID, areaSize) })
	}
}

// withinHost returns the path between the nodes of a host.
func withinHost(host string, id membership.NodeID, areaSize int) (mesh.Path, error) {
	t, err := shm.New(shm.Config{Cluster: host, Node: id.String(), Areas: negotiate.Areas, AreaSize: areaSize, Stream: kernel.Streamer()})
	return mesh.Path{Transport: t}, err
}

// bulkPath returns the TCP path at the port of an endpoint, with two connections.
func bulkPath(e *quic.Endpoint, identity *pki.Identity, plain bool) ([]mesh.Path, error) {
	l, err := e.Listener()
	if err != nil {
		return nil, err
	}
	t, err := tcp.Listen(tcp.Config{Listener: l, Plain: plain, IdleTimeout: Patience}, identity)
	return []mesh.Path{{Transport: t, Encrypted: !plain, Bulk: true, Pipes: 2}}, err
}

// listenQUIC returns n nodes with certificates on the loopback interface. more, if not nil, returns paths of a rank beside that of QUIC.
func listenQUIC(n int, more func(rank int, e *quic.Endpoint, identity *pki.Identity) ([]mesh.Path, error)) (s nodeSet, err error) {
	authority, err := pki.NewAuthority()
	if err != nil {
		return s, err
	}
	view, keys, err := nodes(n)
	if err != nil {
		return s, err
	}
	var endpoints []*quic.Endpoint
	s = nodeSet{view: view, end: func() error {
		return ForEach(len(endpoints), func(rank int) error { return endpoints[rank].Close() })
	}}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.end())
		}
	}()
	for rank, key := range keys {
		identity, err := certify(authority, key)
		if err != nil {
			return s, err
		}
		endpoint, err := quic.Listen(quic.Config{Addr: "127.0.0.1:0", IdleTimeout: Patience})
		if err != nil {
			return s, err
		}
		endpoints = append(endpoints, endpoint)
		var paths []mesh.Path
		if more != nil {
			if paths, err = more(rank, endpoint, identity); err != nil {
				return s, err
			}
		}
		tr, err := endpoint.Transport(identity)
		if err != nil {
			return s, err
		}
		// Nodes on different hosts do not dial loopback addresses, but they dial the
		// IPv4-mapped form.
		at := netip.MustParseAddrPort(endpoint.Addr())
		view.Nodes[rank].Addrs = []string{netip.AddrPortFrom(netip.AddrFrom16(at.Addr().As16()), at.Port()).String()}
		s.paths = append(s.paths, append(paths, mesh.Path{Transport: tr, Encrypted: true}))
	}
	return s, nil
}

// listenBulk returns n nodes with TCP beside QUIC.
func listenBulk(plain bool) listener {
	return func(n int) (nodeSet, error) {
		return listenQUIC(n, func(_ int, e *quic.Endpoint, identity *pki.Identity) ([]mesh.Path, error) {
			return bulkPath(e, identity, plain)
		})
	}
}

// listenMixed returns n nodes on the hosts of HostOf: shared memory within a host, TCP
// and QUIC between hosts.
func listenMixed(n int) (nodeSet, error) {
	return listenQUIC(n, func(rank int, e *quic.Endpoint, identity *pki.Identity) ([]mesh.Path, error) {
		p, err := withinHost(HostOf(rank), identity.ID(), negotiate.AreaSize())
		if err != nil {
			return nil, err
		}
		bulk, err := bulkPath(e, identity, false)
		return append([]mesh.Path{p}, bulk...), err
	})
}

// certify returns the identity of a key in the cluster of an authority.
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

// Over returns a medium of the transport of a factory, beside QUIC.
func Over(f transport.Factory, network cost.Network) Medium {
	return Medium{Name: f.Name, Cost: network, listen: func(n int) (nodeSet, error) {
		var addrs []string
		s, err := listenQUIC(n, func(_ int, _ *quic.Endpoint, identity *pki.Identity) ([]mesh.Path, error) {
			t, err := f.Listen(context.Background(), transport.Env{
				Cluster: identity.Cluster(), Node: identity.ID().String(), Server: identity.Server(), Client: identity.Client, Peer: identity.Peer,
				Log: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				return nil, err
			}
			addrs = append(addrs, t.Addr())
			return []mesh.Path{{Transport: t, Alone: true}}, nil
		})
		for rank, addr := range addrs {
			s.view.Nodes[rank].Endpoints = []membership.Endpoint{{Transport: f.Name, Addr: addr}, {Transport: "quic"}}
		}
		return s, err
	}}
}
