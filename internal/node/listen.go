package node

import (
	"context"
	"crypto/tls"
	"errors"
	"sync"

	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/shm"
	"github.com/nexar-go/nexar/transport/tcp"
)

// announce starts the transports of factories for an attempt to join, and returns the
// endpoints of all transports. Their handshakes wait for the certificate that the
// seed is about to issue.
func (n *Node) announce(ctx context.Context, cluster string, id membership.NodeID) (list []membership.Endpoint, err error) {
	n.closeExtra()
	n.creds = newPendingCredentials()
	for _, f := range n.cfg.Transports.factories() {
		t, err := n.sockets.start(ctx, f, n.sockets.env(n.cfg.Listen, cluster, id.String(), n.creds))
		if err != nil {
			n.sockets.lack(f.Name, err)
			continue
		}
		n.extra = append(n.extra, t)
		list = append(list, membership.Endpoint{Transport: f.Name, Addr: t.Addr()})
	}
	for _, name := range BuiltIn() {
		if n.sockets.listensTo(name) {
			list = append(list, membership.Endpoint{Transport: name})
		}
	}
	if len(list) == 0 {
		return nil, errors.New("no transport can be used (NEXAR_TRANSPORTS)")
	}
	return list, nil
}

// closeExtra closes the transports of factories.
func (n *Node) closeExtra() {
	for _, t := range n.extra {
		t.Close()
	}
	n.extra = nil
}

// listen makes the paths to other nodes, the best first: through memory, by the
// transports of factories, and by TCP and QUIC. QUIC is last: a node that has
// answered there also listens on the others.
func (n *Node) listen() error {
	var near, far []mesh.Path
	for _, t := range n.extra {
		can := transport.CapabilitiesOf(t)
		p := mesh.Path{Transport: t, Alone: true, Encrypted: can.Locality == transport.AnyHost}
		if can.Locality == transport.AnyHost {
			far = append(far, p)
		} else {
			near = append(near, p)
		}
	}
	n.extra = nil
	n.paths = near
	if n.cfg.Transports.may(shmName) {
		n.listenShm()
	}
	n.paths = append(n.paths, far...)
	if n.sockets.listensTo(tcpName) {
		n.listenTCP()
	}
	if !n.sockets.listensTo(quicName) {
		if len(n.paths) == 0 {
			return errors.New("no transport can be used (NEXAR_TRANSPORTS)")
		}
		return nil
	}
	t, err := n.sockets.endpoint.Transport(n.Session.Identity)
	if err != nil {
		return err
	}
	n.paths = append(n.paths, mesh.Path{Transport: t, Encrypted: true})
	return nil
}

func (n *Node) listenShm() {
	t, err := shm.New(shm.Config{
		Cluster: n.Session.Identity.Cluster(), Node: n.ID().String(), Areas: n.cfg.Areas, AreaSize: n.cfg.AreaSize,
		Stream: kernel.Streamer(), Log: n.cfg.Log,
	})
	if err != nil {
		n.sockets.lack(shmName, err)
		return
	}
	n.paths = append(n.paths, mesh.Path{Transport: t})
}

// listenTCP makes the path over TCP. It carries payloads beside QUIC, and whole links
// with nodes that do without QUIC.
func (n *Node) listenTCP() {
	l, err := n.sockets.listenTCP()
	if err != nil {
		n.sockets.lack(tcpName, err)
		return
	}
	idle := n.cfg.HeartbeatTimeout // The same silence means the same on both connections.
	if n.cfg.HeartbeatInterval < 0 {
		idle = -1
	}
	t, err := tcp.Listen(tcp.Config{Listener: l, Plain: n.cfg.PlainBulk, IdleTimeout: idle, Log: n.cfg.Log}, n.Session.Identity)
	if err != nil {
		l.Close()
		n.sockets.lack(tcpName, err)
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

// pendingCredentials are those of a node that is about to be admitted. Handshakes
// wait until it is, since its peers may hear of it first.
type pendingCredentials struct {
	once     sync.Once
	admitted chan struct{}
	identity *pki.Identity // set before admitted is closed
}

func newPendingCredentials() *pendingCredentials {
	return &pendingCredentials{admitted: make(chan struct{})}
}

// admit sets the identity.
func (p *pendingCredentials) admit(i *pki.Identity) {
	p.once.Do(func() {
		p.identity = i
		close(p.admitted)
	})
}

var errNotAdmitted = errors.New("this node has not been admitted to the cluster")

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
