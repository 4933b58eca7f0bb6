package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"

	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/shm"
	"github.com/nexar-go/nexar/transport/tcp"
)

// announce starts the transports of factories for an attempt to join, and returns the
// endpoints of all transports. The handshakes wait until the seed has issued the certificate.
func (n *Node) announce(ctx context.Context, cluster string, id membership.NodeID) (list []membership.Endpoint, err error) {
	n.closeStarted()
	n.creds = newPendingCredentials()
	for _, f := range n.cfg.Transports.factories() {
		t, err := start(ctx, f, n.sockets.env(n.cfg.Listen, cluster, id.String(), n.creds))
		if err != nil {
			n.sockets.noteUnavailable(f.Name, err)
			continue
		}
		n.started = append(n.started, t)
		list = append(list, membership.Endpoint{Transport: f.Name, Addr: t.Addr()})
	}
	for _, name := range BuiltIn() {
		if n.sockets.listensTo(name) {
			list = append(list, membership.Endpoint{Transport: name})
		}
	}
	if len(list) == 0 {
		return nil, errNoTransport
	}
	return list, nil
}

var errNoTransport = errors.New("no transport can be used (NEXAR_TRANSPORTS)")

// closeStarted closes the transports of factories that are in no path.
func (n *Node) closeStarted() {
	for _, t := range n.started {
		t.Close()
	}
	n.started = nil
}

// listen makes the paths to other nodes, in the order of preference: within the host, by the
// transports of factories, by TCP and by QUIC. QUIC is last: a node that has answered there
// also listens on the others.
func (n *Node) listen() error {
	var remote []mesh.Path
	for _, t := range n.started {
		if can := transport.CapabilitiesOf(t); can.Locality == transport.AnyHost {
			isBulk := t.Name() == n.cfg.Bulk
			remote = append(remote, mesh.Path{Transport: t, Alone: !isBulk, Bulk: isBulk, Encrypted: !can.Clear})
		} else {
			n.paths = append(n.paths, mesh.Path{Transport: t, Alone: true})
		}
	}
	n.started = nil
	if n.cfg.Transports.allows(shmName) {
		n.listenShm()
	}
	n.paths = append(n.paths, remote...)
	if n.sockets.listensTo(tcpName) {
		n.listenTCP()
	}
	if n.sockets.listensTo(quicName) {
		t, err := n.sockets.endpoint.Transport(n.Session.Identity)
		if err != nil {
			return err
		}
		n.paths = append(n.paths, mesh.Path{Transport: t, Encrypted: true})
	}
	if len(n.paths) == 0 {
		return errNoTransport
	}
	return n.listenRelay()
}

// listenRelay makes the path over relays if the topology is sparse.
func (n *Node) listenRelay() (err error) {
	if n.cfg.Request.Topology.IsFull() {
		return nil
	}
	i := n.Session.Identity
	n.relay, err = mesh.NewRelay(mesh.RelayConfig{Self: n.ID(), Server: i.Server(), Client: i.Client, Peer: i.Peer, Tamper: n.cfg.Tamper, Log: n.cfg.Log})
	if err != nil {
		return err
	}
	n.paths = append(n.paths, n.relay.Path())
	return nil
}

func (n *Node) listenShm() {
	t, err := shm.New(shm.Config{
		Cluster: n.Session.Identity.Cluster(), Node: n.ID().String(), Areas: n.cfg.Areas, AreaSize: n.cfg.AreaSize,
		Stream: kernel.Streamer(), Log: n.cfg.Log,
	})
	if err != nil {
		n.sockets.noteUnavailable(shmName, err)
		return
	}
	n.paths = append(n.paths, mesh.Path{Transport: t})
}

// listenTCP makes the path over TCP. Links with the control lane on QUIC use it for payloads,
// and links with nodes without QUIC for everything.
func (n *Node) listenTCP() {
	l, err := n.sockets.listenTCP()
	if err != nil {
		n.sockets.noteUnavailable(tcpName, err)
		return
	}
	idle := n.cfg.HeartbeatTimeout // the same limit on both connections of a link
	if n.cfg.HeartbeatInterval < 0 {
		idle = -1
	}
	t, err := tcp.Listen(tcp.Config{Listener: l, Plain: n.cfg.PlainBulk, IdleTimeout: idle, Log: n.cfg.Log}, n.Session.Identity)
	if err != nil {
		l.Close()
		n.sockets.noteUnavailable(tcpName, err)
		return
	}
	p := mesh.Path{Transport: t, Name: "tcp+tls", Encrypted: true}
	if n.cfg.PlainBulk {
		p.Name, p.Encrypted = "tcp", false
	}
	if n.sockets.listensTo(quicName) {
		p.Bulk, p.Whole = true, true
	}
	n.paths = append(n.paths, p)
}

// pendingCredentials are the credentials of a node before and after its admission. Handshakes
// of peers wait for it, since peers may have the view before the node.
type pendingCredentials struct {
	admitted chan struct{}
	identity *pki.Identity // set before admitted is closed
}

func newPendingCredentials() *pendingCredentials {
	return &pendingCredentials{admitted: make(chan struct{})}
}

// admit sets the identity and lets handshakes continue. It is called once.
func (p *pendingCredentials) admit(i *pki.Identity) {
	p.identity = i
	close(p.admitted)
}

var errNotAdmitted = fmt.Errorf("%w: this node has not been admitted to the cluster", transport.ErrIdentity)

func (p *pendingCredentials) Server() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			select {
			case <-p.admitted:
				return p.identity.Server(), nil
			case <-hello.Context().Done():
				return nil, errNotAdmitted
			}
		},
	}
}

func (p *pendingCredentials) Client(peer string) *tls.Config {
	select {
	case <-p.admitted:
		return p.identity.Client(peer)
	default:
		refuse := func(tls.ConnectionState) error { return errNotAdmitted }
		return &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, VerifyConnection: refuse}
	}
}

func (p *pendingCredentials) Peer(state tls.ConnectionState) (string, error) {
	select {
	case <-p.admitted:
		return p.identity.Peer(state)
	default:
		return "", errNotAdmitted
	}
}
