//go:build linux

package rdma

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/nexar-go/nexar/hw/internal/verbs"
	"github.com/nexar-go/nexar/transport"
)

const (
	slotBytes   = 16 << 10 // of a buffer, and of the longest message
	systemSlots = 16       // buffers for system messages
	pipeSlots   = 8        // buffers for a pipe
	largeSlots  = 32       // buffers for a pipe of OpenLarge
	sendSlots   = 32       // buffers for payloads that are copied
	recvQueue   = 2048     // bounds the buffers of a conn
	sendQueue   = 128
	inlineBytes = 64
	sendSpare   = 16 // entries of the send queue that pipes leave to others
)

// A slot is a registered buffer.
type slot struct {
	memory []byte
	key    uint32
	chunk  *chunk
}

// A chunk is memory for several slots.
type chunk struct {
	memory verbs.Memory
	mr     *verbs.MR
}

func newChunk(pd *verbs.PD, slots int) (*chunk, error) {
	m, err := verbs.NewMemory(slots * slotBytes)
	if err != nil {
		return nil, err
	}
	mr, err := pd.Register(m.Addr(), len(m), verbs.AccessLocalWrite)
	if err != nil {
		m.Free()
		return nil, err
	}
	return &chunk{m, mr}, nil
}

func (c *chunk) slots() (list []slot) {
	for i := 0; i+slotBytes <= len(c.memory); i += slotBytes {
		list = append(list, slot{c.memory[i : i+slotBytes : i+slotBytes], c.mr.Local, c})
	}
	return list
}

func (c *chunk) close() {
	c.mr.Close()
	c.memory.Free()
}

// An op is a set of work requests. A goroutine waits for their end.
type op struct {
	left   int
	status uint32
	wake   chan struct{} // has capacity 1
}

// A request is an entry of the send queue.
type request struct {
	slot int // a send slot to release, or -1
	op   *op // may be nil
}

// A conn is a connection to one peer. The side that dialed numbers its pipes 0, 2, 4, …, the other one 1, 3, 5, ….
type conn struct {
	t        *rdma
	control  *tls.Conn
	tcp      net.Conn // below control
	peer     string   // its identity
	dialed   bool
	addr     string // of the peer, if dialed
	route    verbs.Route
	incoming chan *receiver
	done     chan struct{}
	stopped  chan struct{} // closed when run has ended

	mu    sync.Mutex
	err   error // set before done is closed
	cq    *verbs.CQ
	qp    *verbs.QP // nil after the end
	uses  int       // goroutines that access slots or registrations
	freed bool
	list  []verbs.Completion // reused

	recv       []slot // buffers for messages of the peer
	chunks     []*chunk
	spare      int // of recv, which belong to no pipe
	send       []slot
	freeSend   []int
	requests   []request // by the ID of the work request
	freeReqs   []int
	systemLeft int // system messages that the peer has buffers for
	systemOwed int // system messages of the peer whose buffers are free again
	queue      []system
	waiting    []*sender // for send slots or for the send queue
	pollers    int
	sleepers   int           // see sleep
	rouse      chan struct{} // has capacity 1; wakes run while it leaves the completions to the pollers

	next      uint32 // number of the next pipe
	senders   map[uint32]*sender
	receivers map[uint32]*receiver

	grants    map[*grant]struct{}
	windows   []*verbs.Window // without a binding
	lastGrant uint32
	number    uint32 // of the QP
	inlineMax int    // QP.Inline
	stall     stall
	recalled  []uint64       // keys of the peer that must not be used
	writes    map[uint64]int // calls of WriteRemote in progress, by key
}

func newConn(t *rdma, control *tls.Conn, tcp net.Conn, peer string) (c *conn, err error) {
	dev := t.dev
	if err := dev.hold(); err != nil {
		return nil, err
	}
	c = &conn{
		t: t, control: control, tcp: tcp, peer: peer, incoming: make(chan *receiver, maxBacklog),
		done: make(chan struct{}), stopped: make(chan struct{}), systemLeft: systemSlots,
		senders: make(map[uint32]*sender), receivers: make(map[uint32]*receiver), grants: make(map[*grant]struct{}),
		writes: make(map[uint64]int), rouse: make(chan struct{}, 1),
	}
	defer func() {
		if err != nil {
			c.discard()
			c = nil
		}
	}()
	if c.cq, err = dev.d.NewCQ(min(recvQueue+sendQueue, dev.d.MaxCompletions())); err != nil {
		return c, err
	}
	size := verbs.Queue{Send: sendQueue, Receive: min(recvQueue, dev.d.MaxQueue()), Inline: inlineBytes}
	if c.qp, err = dev.pd.NewQP(c.cq, size); err != nil {
		return c, err
	}
	if err = c.qp.Init(dev.port.Number, verbs.AccessRemoteWrite); err != nil {
		return c, err
	}
	out, err := newChunk(dev.pd, sendSlots)
	if err != nil {
		return c, err
	}
	c.chunks = append(c.chunks, out)
	c.send = out.slots()
	for i := range c.send {
		c.freeSend = append(c.freeSend, i)
	}
	c.number, c.inlineMax = c.qp.Number, c.qp.Inline
	c.stall.timer = time.AfterFunc(time.Hour, c.checkStall)
	c.stall.timer.Stop()
	c.requests = make([]request, sendQueue)
	for i := range c.requests {
		c.freeReqs = append(c.freeReqs, i)
	}
	_, err = c.addSlotsLocked(systemSlots)
	return c, err
}

// addSlotsLocked posts buffers for further messages of the peer. It reports false if the queue has no room.
func (c *conn) addSlotsLocked(n int) (bool, error) {
	if len(c.recv)+n > min(recvQueue, c.t.dev.d.MaxQueue()) {
		return false, nil
	}
	in, err := newChunk(c.t.dev.pd, n)
	if err != nil {
		return false, err
	}
	c.chunks = append(c.chunks, in)
	c.recv = append(c.recv, in.slots()...)
	for i := len(c.recv) - n; i < len(c.recv); i++ {
		if err := c.postLocked(i); err != nil {
			return false, err
		}
	}
	return true, nil
}

// postLocked makes slot i available for a message.
func (c *conn) postLocked(i int) error {
	return c.qp.Receive(uint64(i), c.recv[i].memory, c.recv[i].key)
}

// discard releases a conn that was not adopted.
func (c *conn) discard() {
	if c.qp != nil {
		c.qp.Close()
		c.qp = nil
	}
	if c.cq != nil {
		c.cq.Close()
	}
	for _, k := range c.chunks {
		k.close()
	}
	c.chunks = nil
	c.t.dev.letGo()
}

func (c *conn) Peer() string          { return cmp.Or(c.peer, c.RemoteAddr()) }
func (c *conn) RemoteAddr() string    { return cmp.Or(c.addr, c.tcp.RemoteAddr().String()) }
func (c *conn) Done() <-chan struct{} { return c.done }

// ConnectionState implements [transport.TLSConn].
func (c *conn) ConnectionState() tls.ConnectionState { return c.control.ConnectionState() }

// Capabilities implements [transport.Capable].
func (c *conn) Capabilities() transport.Capabilities {
	can := transport.Capabilities{Class: transport.ClassTCP, Clear: true, TLSConn: c, LargeOpener: c}
	if c.t.dev.d.Windows() {
		can.RemoteMemory = c
		if !c.t.dev.loose { // Software RDMA cannot access memory of a GPU.
			can.Exposer = c.t
		}
	}
	return can
}

// Err implements [transport.Conn].
func (c *conn) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close implements [transport.Conn].
func (c *conn) Close() error {
	c.end(transport.ErrClosed)
	return nil
}

// errFailed is the reason of the end of a conn whose queue pair has failed, here or at the peer.
var errFailed = fmt.Errorf("%w: the queue pair has failed", transport.ErrPeerGone)

// failed returns the reason of the end of a conn whose queue pair has failed because of err.
func (c *conn) failed(err error) error {
	return fmt.Errorf("%w: device %s, port %d: %w", errFailed, c.t.dev.d.Name, c.t.dev.port.Number, err)
}

// end ends the conn, and tells the peer. The first reason counts. The device accesses no memory of the conn or of its grants
// from the moment when done is closed or Err returns the reason.
func (c *conn) end(reason error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	if errors.Is(reason, errFailed) {
		c.t.cfg.Counters.failures.Add(1)
	}
	c.tellEnd(reason) // before the peer can notice the end of the QP
	c.err = fmt.Errorf("rdma: connection to %q: %w", c.Peer(), reason)
	// A window keeps its QP and its memory from being freed, so the windows go first.
	cq := c.cq
	if c.qp != nil {
		_ = c.qp.Fail() // if it fails, Close below ends the transfers
		c.endGrantsLocked()
		c.qp.Close()
		c.qp = nil
	}
	close(c.done)
	c.stall.timer.Stop()
	for _, s := range c.senders {
		poke(s.wake)
	}
	for _, r := range c.receivers {
		poke(r.wake)
	}
	c.mu.Unlock()
	cq.Interrupt()
	c.tcp.Close()
	c.t.forget(c)
}

// reasonMax bounds the reason of the end of a conn on the control connection.
const reasonMax = 1 << 10

// tellEnd tells the peer why the conn ends, or is not made. Without that, the end of the TCP connection ends the Conn of the peer.
func (c *conn) tellEnd(reason error) {
	c.tcp.SetWriteDeadline(time.Now().Add(time.Second))
	_, _ = c.control.Write(farewell(reason))
}

// farewell returns the last bytes on the control connection.
func farewell(reason error) []byte {
	if errors.Is(reason, transport.ErrClosed) {
		return []byte{ctlBye}
	}
	text := strings.TrimPrefix(reason.Error(), errFailed.Error()+": ")
	return append([]byte{ctlFailed}, text[:min(len(text), reasonMax)]...)
}

// readFailure reads the rest of the control connection after ctlFailed.
func readFailure(r io.Reader) error {
	text, _ := io.ReadAll(io.LimitReader(r, reasonMax)) // The end of the connection is expected.
	return fmt.Errorf("%w at the peer: %q", errFailed, text)
}

// poke wakes the goroutine that waits on a channel with capacity 1.
func poke(wake chan struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

// run handles completions until the end of the conn.
func (c *conn) run() {
	for {
		c.mu.Lock()
		err := c.err
		polled := err == nil && c.pollers > 0 && c.sleepers == 0 // The pollers need no events.
		if err == nil && !polled {
			c.t.cfg.Counters.waits.Add(1)
			if err = c.cq.Arm(); err != nil {
				err = c.failed(err)
			} else {
				err = c.pollLocked() // Those that arrived before Arm cause no event.
			}
		}
		c.mu.Unlock()
		if err != nil {
			c.end(err)
			break
		}
		if polled {
			select {
			case <-c.rouse:
			case <-c.done:
			}
			continue
		}
		if err := c.cq.Wait(); err != nil { // after the end, too
			c.end(c.failed(fmt.Errorf("events of completions: %w", err)))
			break
		}
	}
	<-c.done
	c.mu.Lock()
	c.cq.Close()
	c.cq = nil
	close(c.stopped)
	c.freeLocked()
	c.mu.Unlock()
}

// freeLocked frees the buffers of a conn that has ended, if no goroutine accesses them.
func (c *conn) freeLocked() {
	if c.qp != nil || c.cq != nil || c.uses > 0 || c.freed {
		return
	}
	c.freed = true
	for _, k := range c.chunks {
		k.close()
	}
	c.chunks = nil
	c.t.dev.letGo()
}

// readControl reads the control connection until it ends, which ends the conn.
func (c *conn) readControl() {
	in := bufio.NewReader(c.control)
	switch kind, err := in.ReadByte(); {
	case errors.Is(err, io.EOF):
		c.end(fmt.Errorf("%w: the control connection has ended", transport.ErrPeerGone))
	case err != nil:
		c.end(fmt.Errorf("%w: control connection: %w", transport.ErrPeerGone, err))
	case kind == ctlBye:
		c.end(transport.ErrPeerClosed)
	case kind == ctlFailed:
		c.end(readFailure(in))
	default:
		c.end(fmt.Errorf("%w: control message of unknown kind %#x", transport.ErrPeerGone, kind))
	}
}

// OpenPipe implements [transport.Conn].
func (c *conn) OpenPipe(ctx context.Context) (transport.Sender, error) { return c.open(ctx, 0) }

// OpenLarge implements [transport.LargeOpener].
func (c *conn) OpenLarge(ctx context.Context) (transport.Sender, error) { return c.open(ctx, 1) }

func (c *conn) open(ctx context.Context, large uint32) (transport.Sender, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return nil, c.err
	}
	if c.next == 0 && !c.dialed {
		c.next = 1
	}
	s := &sender{conn: c, pipe: c.next, wake: make(chan struct{}, 1)}
	s.deadline.wake = s.wake
	c.next = (c.next + 2) & (1<<28 - 1)
	c.senders[s.pipe] = s
	err := c.tellLocked(system{kind: msgOpen, pipe: s.pipe, arg: large})
	c.mu.Unlock()
	if err != nil {
		c.end(err)
		return nil, c.Err()
	}
	return s, nil
}

// AcceptPipe implements [transport.Conn].
func (c *conn) AcceptPipe(ctx context.Context) (transport.Receiver, error) {
	if err := cmp.Or(c.Err(), ctx.Err()); err != nil {
		return nil, err
	}
	select {
	case r := <-c.incoming:
		return r, nil
	case <-c.done:
		return nil, c.Err()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// addr returns the address of the first byte.
func addr(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
