package worldtest

import (
	"context"
	"errors"
	"fmt"
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

func noop() error { return nil }

func listenMem(n int) (view membership.View, paths [][]mesh.Path, end func() error, err error) {
	return listenWithin(n, negotiate.AreaSize())
}

// listenMemLinks is listenMem without shared memory: all bytes go over links.
func listenMemLinks(n int) (view membership.View, paths [][]mesh.Path, end func() error, err error) {
	return listenWithin(n, 0)
}

// listenMemHosts is listenMemLinks with two ranks on each host.
func listenMemHosts(n int) (view membership.View, paths [][]mesh.Path, end func() error, err error) {
	view, paths, end, err = listenMemLinks(n)
	for rank := range view.Nodes {
		view.Nodes[rank].Host = fmt.Sprint("host ", rank/2)
	}
	return view, paths, end, err
}

func listenWithin(n, areaSize int) (view membership.View, paths [][]mesh.Path, end func() error, err error) {
	if view, _, err = nodes(n); err != nil {
		return view, nil, nil, err
	}
	network := mem.NewNetwork()
	network.Share(negotiate.Areas, areaSize)
	for _, node := range view.Nodes {
		tr, err := network.Listen(node.ID.String())
		if err != nil {
			return view, nil, nil, err
		}
		paths = append(paths, []mesh.Path{{Transport: tr}})
	}
	return view, paths, noop, nil
}

func listenSHM(n int) (view membership.View, paths [][]mesh.Path, end func() error, err error) {
	return listenShared(n, negotiate.AreaSize())
}

// listenSHMLinks is listenSHM without areas: all bytes go over links.
func listenSHMLinks(n int) (view membership.View, paths [][]mesh.Path, end func() error, err error) {
	return listenShared(n, 0)
}

func listenShared(n, areaSize int) (view membership.View, paths [][]mesh.Path, end func() error, err error) {
	if view, _, err = nodes(n); err != nil {
		return view, nil, nil, err
	}
	for _, node := range view.Nodes {
		p, err := withinHost("a host", node.ID, areaSize)
		if err != nil {
			return view, nil, nil, err
		}
		paths = append(paths, []mesh.Path{p})
	}
	return view, paths, noop, nil
}

// withinHost returns the path between the nodes of a host.
func withinHost(host string, id membership.NodeID, areaSize int) (mesh.Path, error) {
	t, err := shm.New(shm.Config{Cluster: host, Node: id.String(), Areas: negotiate.Areas, AreaSize: areaSize, Stream: kernel.Streamer()})
	return mesh.Path{Transport: t}, err
}

// listenQUIC returns nodes with certificates on the loopback interface.
func listenQUIC(n int) (view membership.View, paths [][]mesh.Path, end func() error, err error) {
	return listenAt(n, func(int, *quic.Endpoint, *pki.Identity) ([]mesh.Path, error) { return nil, nil })
}

func listenTLS(n int) (view membership.View, paths [][]mesh.Path, end func() error, err error) {
	return listenAt(n, func(_ int, e *quic.Endpoint, identity *pki.Identity) ([]mesh.Path, error) {
		return bulkPath(e, identity, false)
	})
}

func listenTCP(n int) (view membership.View, paths [][]mesh.Path, end func() error, err error) {
	return listenAt(n, func(_ int, e *quic.Endpoint, identity *pki.Identity) ([]mesh.Path, error) {
		return bulkPath(e, identity, true)
	})
}

// listenMixed returns nodes on the hosts of HostOf: shared memory within a host, TCP
// and QUIC between hosts.
func listenMixed(n int) (view membership.View, paths [][]mesh.Path, end func() error, err error) {
	return listenAt(n, func(rank int, e *quic.Endpoint, identity *pki.Identity) ([]mesh.Path, error) {
		p, err := withinHost(HostOf(rank), identity.ID(), negotiate.AreaSize())
		if err != nil {
			return nil, err
		}
		bulk, err := bulkPath(e, identity, false)
		return append([]mesh.Path{p}, bulk...), err
	})
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

// listenAt is listenQUIC with additional paths from more.
func listenAt(n int, more func(rank int, e *quic.Endpoint, identity *pki.Identity) ([]mesh.Path, error)) (
	view membership.View, paths [][]mesh.Path, end func() error, err error,
) {
	authority, err := pki.NewAuthority()
	if err != nil {
		return view, nil, nil, err
	}
	view, keys, err := nodes(n)
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
		endpoint, err := quic.Listen(quic.Config{Addr: "127.0.0.1:0", IdleTimeout: Patience})
		if err != nil {
			return view, nil, nil, errors.Join(err, end())
		}
		endpoints = append(endpoints, endpoint)
		extra, err := more(rank, endpoint, identity)
		if err != nil {
			return view, nil, nil, errors.Join(err, end())
		}
		tr, err := endpoint.Transport(identity)
		if err != nil {
			return view, nil, nil, errors.Join(err, end())
		}
		// Nodes on different hosts do not dial loopback addresses, but they dial the
		// IPv4-mapped form.
		at := netip.MustParseAddrPort(endpoint.Addr())
		view.Nodes[rank].Addrs = []string{netip.AddrPortFrom(netip.AddrFrom16(at.Addr().As16()), at.Port()).String()}
		paths = append(paths, append(extra, mesh.Path{Transport: tr, Encrypted: true}))
	}
	return view, paths, end, nil
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
	return Medium{Name: f.Name, Cost: network, listen: func(n int) (view membership.View, paths [][]mesh.Path, end func() error, err error) {
		var addrs []string
		view, paths, end, err = listenAt(n, func(_ int, _ *quic.Endpoint, identity *pki.Identity) ([]mesh.Path, error) {
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
			view.Nodes[rank].Endpoints = []membership.Endpoint{{Transport: f.Name, Addr: addr}, {Transport: "quic"}}
		}
		return view, paths, end, err
	}}
}
