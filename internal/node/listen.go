package node

import (
	"fmt"
	"strings"

	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/transport/shm"
	"github.com/nexar-go/nexar/transport/tcp"
)

// listen makes the ways on which others reach this node. QUIC comes last:
// whoever has reached it there finds the others open.
func (n *Node) listen() error {
	if n.cfg.may("shm") {
		t, err := shm.New(shm.Config{
			Cluster: n.Session.Identity.Cluster(), Node: n.ID().String(), Areas: n.cfg.Areas, AreaSize: n.cfg.AreaSize,
			Stream: kernel.Streamer(), Log: n.cfg.Log,
		})
		if err != nil {
			n.without("shm", err)
		} else {
			n.paths = append(n.paths, mesh.Path{Transport: t, NotHere: shm.ErrNotHere})
		}
	}
	if n.cfg.may("tcp") {
		t, err := n.listenTCP()
		if err != nil {
			n.without("tcp", err)
		} else {
			n.paths = append(n.paths, t)
		}
	}
	t, err := n.endpoint.Transport(n.Session.Identity)
	if err != nil {
		return err
	}
	n.paths = append(n.paths, mesh.Path{Transport: t, Encrypted: true})
	return nil
}

// listenTCP makes the path for bulk, at the port of the endpoint.
func (n *Node) listenTCP() (mesh.Path, error) {
	l, err := n.endpoint.Listener()
	if err != nil {
		return mesh.Path{}, err
	}
	idle := n.cfg.HeartbeatTimeout // The same silence means the same on both connections.
	if n.cfg.HeartbeatInterval < 0 {
		idle = -1
	}
	t, err := tcp.Listen(tcp.Config{Listener: l, Plain: n.cfg.PlainBulk, IdleTimeout: idle, Log: n.cfg.Log}, n.Session.Identity)
	if err != nil {
		l.Close()
		return mesh.Path{}, err
	}
	if n.cfg.PlainBulk {
		return mesh.Path{Transport: t, Name: "tcp", Bulk: true}, nil
	}
	return mesh.Path{Transport: t, Name: "tcp+tls", Encrypted: true, Bulk: true}, nil
}

// without notes that a way to reach others is not there.
func (n *Node) without(name string, err error) {
	n.cfg.Log.Info("a transport cannot be used", "transport", name, "reason", err)
	n.Lacks = append(n.Lacks, fmt.Sprintf("%s: %v", name, strings.TrimPrefix(err.Error(), name+": ")))
}
