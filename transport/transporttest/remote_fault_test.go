package transporttest_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// remoteFaults maps each fault of a RemoteMemory to the subtest that must find it.
func remoteFaults() map[string]string {
	return map[string]string{
		"remote: bytes after completion":         "RemoteWrite",
		"remote: wrong offset":                   "RemoteWrite",
		"remote: one key for two grants":         "RemoteWrite",
		"remote: write past the grant":           "RemoteRefused",
		"remote: refused write changes memory":   "RemoteRefused",
		"remote: grant past the registration":    "RemoteRefused",
		"remote: key of another conn":            "RemoteOtherConn",
		"remote: key survives Revoke":            "RemoteRevoke",
		"remote: key survives Deregister":        "RemoteRevoke",
		"remote: grant after Deregister":         "RemoteRevoke",
		"remote: write in progress after Revoke": "RemoteRevoke",
		"remote: key survives Recall":            "RemoteRecall",
		"remote: Recall ends the conn":           "RemoteRecall",
		"remote: grant survives the conn":        "RemoteEnd",
		"remote: context ignored":                "RemoteEnd",
	}
}

// grantedMemory is the memory behind the keys of a cluster, for writes that a correct
// transport would refuse.
type grantedMemory struct {
	mu    sync.Mutex
	byKey map[transport.RemoteKey]granted
}

// granted is a registration and the offset of a grant in it.
type granted struct {
	memory []byte
	offset int
}

// force writes without checks, as far as the registration has memory. It returns false
// for an unknown key.
func (m *grantedMemory) force(key transport.RemoteKey, offset int, p []byte) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	g, ok := m.byKey[key]
	if at := g.offset + offset; ok && at >= 0 && at <= len(g.memory) {
		copy(g.memory[at:], p)
	}
	return ok
}

// Suits implements [transport.RemoteMemory].
func (f *faultyConn) Suits(memory []byte) bool {
	return transport.CapabilitiesOf(f.Conn).RemoteMemory.Suits(memory)
}

// Register implements [transport.RemoteMemory].
func (f *faultyConn) Register(memory []byte) (transport.Registration, error) {
	r, err := transport.CapabilitiesOf(f.Conn).RemoteMemory.Register(memory)
	return &faultyRegistration{r, f, memory}, err
}

// WriteRemote implements [transport.RemoteMemory].
func (f *faultyConn) WriteRemote(ctx context.Context, key transport.RemoteKey, offset int, p []byte) error {
	inner := transport.CapabilitiesOf(f.Conn).RemoteMemory
	switch f.fault {
	case "remote: bytes after completion":
		late := bytes.Clone(p)
		time.AfterFunc(time.Millisecond, func() { inner.WriteRemote(context.WithoutCancel(ctx), key, offset, late) })
		return nil
	case "remote: wrong offset":
		if offset > 1 {
			offset--
		}
	case "remote: write in progress after Revoke":
		if err := inner.WriteRemote(ctx, key, offset, p[:0]); err != nil {
			return err
		}
		time.Sleep(time.Millisecond)
		f.granted.force(key, offset, p)
		return nil
	case "remote: context ignored":
		ctx = context.WithoutCancel(ctx)
	}
	err := inner.WriteRemote(ctx, key, offset, p)
	switch f.fault {
	case "remote: write past the grant", "remote: key of another conn":
		if errors.Is(err, transport.ErrRemoteAccess) && f.granted.force(key, offset, p) {
			return nil
		}
	case "remote: refused write changes memory":
		if err != nil {
			f.granted.force(key, offset, p)
		}
	case "remote: grant survives the conn":
		if errors.Is(err, transport.ErrPeerClosed) && f.granted.force(key, offset, p) {
			return nil
		}
	}
	return err
}

type faultyRegistration struct {
	transport.Registration
	conn   *faultyConn
	memory []byte
}

func (r *faultyRegistration) Grant(offset, n int) (transport.Grant, error) {
	g, err := r.Registration.Grant(offset, n)
	if err != nil {
		switch r.conn.fault {
		case "remote: grant past the registration", "remote: grant after Deregister":
			return &faultyGrant{conn: r.conn}, nil
		}
		return nil, err
	}
	f := &faultyGrant{g, r.conn}
	m := r.conn.granted
	m.mu.Lock()
	defer m.mu.Unlock()
	m.byKey[f.Key()] = granted{r.memory, offset}
	return f, nil
}

func (r *faultyRegistration) Deregister() {
	if r.conn.fault != "remote: key survives Deregister" {
		r.Registration.Deregister()
	}
}

type faultyGrant struct {
	transport.Grant
	conn *faultyConn
}

func (g *faultyGrant) Key() transport.RemoteKey {
	k := g.Grant.Key()
	if g.conn.fault == "remote: one key for two grants" {
		k.Key = 1
	}
	return k
}

func (g *faultyGrant) Recall(ctx context.Context) error {
	switch g.conn.fault {
	case "remote: key survives Recall":
		return ctx.Err()
	case "remote: Recall ends the conn":
		g.conn.Conn.Close()
		return ctx.Err()
	}
	return g.Grant.Recall(ctx)
}

func (g *faultyGrant) Revoke() {
	if g.conn.fault != "remote: key survives Revoke" {
		g.Grant.Revoke()
	}
}
