package link

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/deadline"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A remoteGrant lets the peer write the payload of a sink directly into its memory.
type remoteGrant struct {
	registration transport.Registration
	grant        transport.Grant
}

// end revokes the permission and releases the memory. It does not wait for the peer.
func (g *remoteGrant) end() {
	g.grant.Revoke()
	g.registration.Deregister()
}

// withdraw ends the permission of a sink that is not full. The peer may be writing: after deadline.Linger the memory is withdrawn from it, which ends
// the connection if it is still writing.
func (l *Link) withdraw(g *remoteGrant) {
	if !l.exchange().grants.ignored.Load() {
		ctx, cancel := context.WithTimeout(context.Background(), deadline.Linger)
		if g.grant.Recall(ctx) != nil && ctx.Err() != nil {
			l.exchange().grants.ignored.Store(true)
		}
		cancel()
	}
	g.end()
}

// shareSink lets the peer write the payload of a grant into the memory of its sink, and sends the key on the
// lane of o, if the connection of o can do that and prefers it. The grant itself is sent later on the same lane.
func (l *Link) shareSink(o *outbox, id uint64) {
	a := l.attached.Load()
	if a == nil {
		return
	}
	p := a.payloads.Load()
	if p == nil || p.can.RemoteMemory == nil || o == &l.exchange().control && p != a.first {
		return
	}
	s := l.exchange().grants.beginShare(id, p.can.RemoteMemory)
	if s == nil {
		return
	}
	g, err := share(p.can.RemoteMemory, s.Dst)
	if err == nil && p.conn.Err() != nil { // The end of the connection has not seen the grant.
		g.end()
		g, err = nil, p.conn.Err()
	}
	l.exchange().grants.endShare(s, g)
	if err != nil { // The payload arrives through a pipe.
		l.common.log.Debug("memory cannot be registered for remote writes", "bytes", len(s.Dst), "err", err)
		return
	}
	k := g.grant.Key()
	f := wire.Key{Grant: id, Addr: k.Addr, Key: k.Key, Length: k.Len}
	o.postTransient(f.Append(nil))
}

func share(m transport.RemoteMemory, memory []byte) (*remoteGrant, error) {
	r, err := m.Register(memory)
	if err != nil {
		return nil, err
	}
	g, err := r.Grant(0, len(memory))
	if err != nil {
		r.Deregister()
		return nil, err
	}
	return &remoteGrant{r, g}, nil
}

// beginShare returns the sink of a grant if its memory shall be registered, and keeps it busy until
// endShare. It returns nil for other sinks: payloads that are reduced arrive through a pipe.
func (g *grants) beginShare(id uint64, m transport.RemoteMemory) *Sink {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.find(id)
	if s == nil || s.busy || s.from != nil || s.remote != nil || s.Reduce != nil || len(s.More) > 0 || len(s.Dst) == 0 || !m.Suits(s.Dst) {
		return nil
	}
	s.busy, s.unsent = true, true
	return s
}

func (g *grants) endShare(s *Sink, remote *remoteGrant) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s.busy, s.unsent, s.remote = false, false, remote
	g.wake.Broadcast()
}

// endRemote ends the permissions of all open sinks, after the end of their connection.
func (g *grants) endRemote() {
	var ended []*remoteGrant
	g.mu.Lock()
	for _, open := range g.set.All() {
		if s := open.Of.(*Sink); s.remote != nil {
			ended = append(ended, s.remote)
			s.remote = nil
		}
	}
	g.mu.Unlock()
	for _, r := range ended {
		r.end()
	}
	g.ignored.Store(false)
}

// written handles a part of a payload that the peer has written into its sink.
func (b *flow) written(f wire.Written) error {
	g := b.of
	if err := g.check(wire.Segment(f), b); err != nil {
		return err
	}
	s := g.hold(f.Grant)
	if s == nil {
		b.finish(f.Grant, nil, false)
		return nil // It was withdrawn.
	}
	isShared := s.remote != nil
	if isShared {
		if s.Landing != nil {
			s.Landing.Drop(s.At+s.next.at, f.Length)
		}
		s.next.advance(f.Length)
		b.link.exchange().bulked.Add(uint64(f.Length))
	}
	n := f.Length
	if !isShared {
		n = 0
	}
	isOpen, isFull := g.release(s, n)
	if !isOpen {
		b.finish(f.Grant, s, isFull)
	}
	b.link.noteRead()
	if !isShared {
		return fmt.Errorf("%d bytes were written for grant %d, which has no key", f.Length, f.Grant)
	}
	return nil
}

// Exposer returns the Exposer of the current connection for payloads, which registers memory of devices for remote writes to
// and from the peer, or nil if the connection has none.
func (l *Link) Exposer() transport.Exposer {
	if p := l.payloadPath(); p != nil && p.can.RemoteMemory != nil {
		return p.can.Exposer
	}
	return nil
}

// SuitsRemote reports whether payloads in memory should be written remotely by the current connection.
func (l *Link) SuitsRemote(memory []byte) bool {
	p := l.payloadPath()
	return p != nil && p.can.RemoteMemory != nil && p.can.RemoteMemory.Suits(memory)
}

// payloadPath returns the path of the data and bulk lanes, or nil without one.
func (l *Link) payloadPath() *path {
	if a := l.attached.Load(); a != nil {
		return a.payloads.Load()
	}
	return nil
}

// DeviceMemory says how payloads of devices are exchanged with the peer of a link.
type DeviceMemory struct{ method atomic.Pointer[string] }

// Set records the method.
func (d *DeviceMemory) Set(method string) {
	if old := d.method.Load(); old == nil || *old != method {
		d.method.Store(&method)
	}
}

// String returns the last method of Set, or "".
func (d *DeviceMemory) String() string {
	if m := d.method.Load(); m != nil {
		return *m
	}
	return ""
}

// keysMax bounds the keys of the peer that are kept. Payloads for older ones are sent through a pipe.
const keysMax = 256

// addKey keeps a key until the transfer for its grant.
func (b *bulk) addKey(k wire.Key) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.keys) == keysMax {
		b.keys = slices.Delete(b.keys, 0, 1)
	}
	b.keys = append(b.keys, k)
}

// takeKeyLocked returns the key for a grant, of as many bytes as the payload, or a zero key.
func (b *bulk) takeKeyLocked(grant uint64, bytes int) (key transport.RemoteKey) {
	i := slices.IndexFunc(b.keys, func(k wire.Key) bool { return k.Grant == grant })
	if i < 0 {
		return key
	}
	if k := b.keys[i]; k.Length == uint64(bytes) {
		key = transport.RemoteKey{Addr: k.Addr, Key: k.Key, Len: k.Length}
	}
	b.keys = slices.Delete(b.keys, i, i+1)
	return key
}

// A placement is the state of a segment that is written remotely.
type placement uint8

const (
	noPlacement placement = iota
	placing               // the payload is being written
	placed                // it is written, and no byte of the Written frame yet
	fetching              // the payload of the transfer is being copied from a device
)

// isRemoteLocked reports whether t is written remotely by w.
func (w *pipeWriter) isRemoteLocked(t *Transfer) bool {
	return t.key.Len > 0 && w.path.can.RemoteMemory != nil
}

// nextBlocksLocked reports whether the next frame of the writer is a remote write, or memory of a device that must be copied
// first. Both block.
func (w *pipeWriter) nextBlocksLocked() bool {
	return !w.hasRestLocked() && len(w.queue) > 0 && (w.isRemoteLocked(w.queue[0]) || w.needsFetchLocked(w.queue[0]))
}

// beginPlacedLocked notes that the frame behind a remote write is being sent.
func (w *pipeWriter) beginPlacedLocked() {
	if w.placement == placed {
		w.placement = noPlacement
	}
}

// beginPlaceLocked returns the arguments of the remote write of the current segment, for a call without the lock.
func (w *pipeWriter) beginPlaceLocked() (life context.Context, key transport.RemoteKey, offset int, body []byte) {
	if w.life == nil {
		w.life, w.interrupt = context.WithCancel(context.Background())
	}
	w.busy, w.writing = true, true
	return w.life, w.current.key, w.current.transfer.Sent(), w.body
}

// placedLocked handles the result of a remote write. If it was refused, and the connection stands, the
// transfer goes on through the pipe. It returns the error that breaks the connection.
func (w *pipeWriter) placedLocked(err error) (broken error) {
	t := w.current
	if err != nil {
		if broken = w.path.conn.Err(); broken != nil {
			broken = fmt.Errorf("link: remote write: %w", broken)
		}
	}
	if w.endWriteLocked() {
		w.life, w.interrupt = context.WithCancel(context.Background())
	}
	if broken != nil {
		w.bulk.stopped = true
	}
	switch {
	case t.recalled: // Also if the connection broke: the memory belongs to the caller again.
		w.dropPlacementLocked()
	case broken != nil:
		w.unplaceLocked()
	case err != nil:
		t.key = transport.RemoteKey{}
		w.unplaceLocked()
	default:
		w.bulk.sent += uint64(len(w.body))
		w.body, w.placement = nil, placed
	}
	return broken
}

// needsFetchLocked reports whether t is memory of a device that w must send through its pipe, so that its next segment must be
// copied first.
func (w *pipeWriter) needsFetchLocked(t *Transfer) bool {
	return t.Fetch != nil && t.fetched == nil && !w.isRemoteLocked(t)
}

// fetchedLocked goes on with the current transfer from the copy of its next segment, or drops it if there is none: its owner knows.
func (w *pipeWriter) fetchedLocked(host []byte) {
	w.endWriteLocked()
	t := w.current
	if host == nil || t.recalled {
		w.bulk.transfers.Recall(&t.transfer)
		w.bulk.drainedLocked()
		w.dropPlacementLocked()
		return
	}
	t.fetched = host
	w.unplaceLocked()
}

// unplaceLocked puts the current transfer back at the front of the queue, before its current segment. The
// peer knows nothing of the segment.
func (w *pipeWriter) unplaceLocked() {
	t := w.current
	w.clearPlacementLocked()
	w.current = nil
	w.queue = append([]*Transfer{t}, w.queue...)
	w.wake.Broadcast()
}

// dropPlacementLocked ends the current transfer before its current segment.
func (w *pipeWriter) dropPlacementLocked() {
	w.clearPlacementLocked()
	w.releaseTransferLocked()
}

// clearPlacementLocked forgets the current segment. The peer counts its bytes only with the Written frame.
func (w *pipeWriter) clearPlacementLocked() {
	if w.placement == placed {
		w.bulk.sent -= uint64(w.size)
	}
	w.head, w.body, w.placement = nil, nil, noPlacement
}
