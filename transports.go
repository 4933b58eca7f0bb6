package nexar

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nexar-go/nexar/internal/accord"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/internal/settings"
	"github.com/nexar-go/nexar/transport/shm"
	"github.com/nexar-go/nexar/transport/tcp"
)

// allTransports are those that Config.Transports may name.
func allTransports() []string { return settings.Defaults[Config]().Transports }

// The variables by which TCP, and the protection of what goes over it, are
// switched off. Both are on by default.
const (
	sidecarVariable = envPrefix + "ENABLE_TCP_BULK_SIDECAR"
	encryptVariable = envPrefix + "ENCRYPT_BULK_TRANSPORT"
)

// switchedOn reads a variable that is 0 or 1, or empty, which is 1.
func switchedOn(name, value string) (bool, error) {
	if value == "" {
		return true, nil
	}
	on, err := settings.Truth(value)
	if err != nil {
		return false, fmt.Errorf("%w: %s=%q: %w", ErrConfig, name, value, err)
	}
	return on, nil
}

// withSidecar takes TCP out of a list from the environment if the variable,
// which may be empty, says so. An empty list stands for all transports.
func withSidecar(list []string, value string) ([]string, error) {
	on, err := switchedOn(sidecarVariable, value)
	if on || err != nil {
		return list, err
	}
	if len(list) == 0 {
		list = allTransports()
	}
	list = slices.DeleteFunc(list, func(t string) bool { return t == "tcp" })
	if len(list) == 0 {
		list = []string{"quic"}
	}
	return list, nil
}

// plainBulk is what two variables of the opposite meaning say together: plain
// says what the one makes of PlainBulk.
func plainBulk(plain bool, vars map[string]string) (bool, error) {
	name, value := variable("PlainBulk"), vars[encryptVariable]
	encrypt, err := switchedOn(encryptVariable, value)
	if value == "" || err != nil {
		return plain, err
	}
	if vars[name] != "" && plain == encrypt {
		return false, fmt.Errorf("%w: %s=%s contradicts %s=%s: set one of them", ErrConfig, encryptVariable, value, name, vars[name])
	}
	return !encrypt, nil
}

// agreeOnBulk lets nobody be overruled silently where it is about protection: it
// finds a program that does without where the environment asks for it.
func agreeOnBulk(program, environment bool, vars map[string]string) error {
	for _, name := range []string{variable("PlainBulk"), encryptVariable} {
		if value := vars[name]; program && !environment && value != "" {
			return fmt.Errorf("%w: %s=%s: but the program sets PlainBulk", ErrConfig, name, value)
		}
	}
	return nil
}

// listen makes the ways on which others reach this node. QUIC comes last:
// whoever has reached it there finds the others open.
func (n *Node) listen(cfg Config) error {
	if slices.Contains(cfg.Transports, "shm") {
		t, err := shm.New(shm.Config{
			Cluster: n.session.Identity.Cluster(), Node: n.session.ID.String(), AreaSize: accord.MemoryBytes(), Log: cfg.Log,
		})
		if err != nil {
			n.without(cfg, "shm", err)
		} else {
			n.paths = append(n.paths, mesh.Path{Transport: t, NotHere: shm.ErrNotHere})
		}
	}
	if slices.Contains(cfg.Transports, "tcp") {
		t, err := n.listenTCP(cfg)
		if err != nil {
			n.without(cfg, "tcp", err)
		} else {
			n.paths = append(n.paths, t)
		}
	}
	t, err := n.endpoint.Transport(n.session.Identity)
	if err != nil {
		return err
	}
	n.paths = append(n.paths, mesh.Path{Transport: t, Encrypted: true})
	return nil
}

// listenTCP makes the path for bulk, at the port of the endpoint.
func (n *Node) listenTCP(cfg Config) (mesh.Path, error) {
	l, err := n.endpoint.Listener()
	if err != nil {
		return mesh.Path{}, err
	}
	idle := cfg.HeartbeatTimeout // The same silence means the same on both connections.
	if cfg.HeartbeatInterval < 0 {
		idle = -1
	}
	t, err := tcp.Listen(tcp.Config{Listener: l, Plain: cfg.PlainBulk, IdleTimeout: idle, Log: cfg.Log}, n.session.Identity)
	if err != nil {
		l.Close()
		return mesh.Path{}, err
	}
	p := mesh.Path{Transport: t, Name: "tcp+tls", Encrypted: true, Bulk: true}
	if cfg.PlainBulk {
		p.Name, p.Encrypted = "tcp", false
		cfg.Log.Warn("payloads between hosts are not protected", "because", variable("PlainBulk"))
	}
	return p, nil
}

// without notes that a way to reach others is not there.
func (n *Node) without(cfg Config, name string, err error) {
	cfg.Log.Info("a transport cannot be used", "transport", name, "reason", err)
	n.lacks = append(n.lacks, fmt.Sprintf("%s: %v", name, strings.TrimPrefix(err.Error(), name+": ")))
}
