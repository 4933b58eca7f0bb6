package nexar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/nexar-go/nexar/internal/overlap"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/trace"
)

// A Tag is the number that a receive uses to select messages. The tag of a message is not negative.
type Tag int64

const (
	// AnyRank makes a receive or probe accept a message from any rank.
	AnyRank = p2p.Any
	// NoRank stands for a rank that does not exist, such as the rank after the last one in a
	// line. It corresponds to MPI_PROC_NULL. A send to it and a receive or probe from it return at once. The
	// receive leaves its buffer unchanged. The [Status] of both has the source NoRank, the tag
	// [AnyTag] and the count 0.
	NoRank = -2
	// AnyTag makes a receive or probe accept a message with any tag.
	AnyTag Tag = p2p.Any
)

// A Status describes a message that was received or found by a probe.
type Status struct {
	Source int // rank of the sender
	Tag    Tag
	Count  int // length in elements
}

// noMessage returns the Status of a receive from NoRank.
func noMessage() Status { return Status{Source: NoRank, Tag: AnyTag} }

// Send sends data to rank to with a tag; to may be this rank or [NoRank]. When Send returns, data
// may be changed, but the message may not have been received yet. Messages from one rank to
// another with the same tag are received in the order of the calls.
//
// Send does not block for a message of at most 64 KiB, as long as at most 1 MiB of messages from this
// node to the other one have not been received. All communicators of the two nodes share this limit, and
// each message counts as 64 bytes more than its data. Otherwise Send blocks until a receive takes the
// message, for at most [Config].MessageTimeout. If the other rank waits for this one as well, as in a
// Send of its own, both get a [DeadlockError]. A Send to this rank blocks until a receive that takes the message
// has begun. Without one it fails with a DeadlockError after [Config].DeadlockTimeout or MessageTimeout; nothing is sent,
// and the communicator remains usable, also if ctx ends before.
//
// Otherwise, if ctx ends while Send blocks, the communicator is revoked. If Send has blocked and the message
// does not fit the buffer of the receive, both sides get an [ErrTruncated] or [ErrTypeMismatch].
//
// If rank to leaves before it has received the message, a Send that blocks fails with a [PeerError] with Left set, and so does each later one. The
// communicator remains usable with the other ranks. A Send that has returned already does not report that its message was not received.
func Send[T any](ctx context.Context, c *Comm, data []T, to int, tag Tag) error {
	s, err := startSend[T](ctx, c, "send", &p2p.Regions{First: bytesOf(data), Received: to == c.impl.Rank}, to, tag)
	return sent(ctx, c, "send", s, err)
}

// StartSend starts a [Send]; see [Handle]. Messages are sent in the order of the calls.
func StartSend[T any](ctx context.Context, c *Comm, data []T, to int, tag Tag) *Handle {
	f := overlap.Flight{Name: "send", Read: bytesOf(data)}
	id, err := c.enterFlight(f)
	if err != nil {
		return ended(opError("send", err))
	}
	s, err := startSend[T](ctx, c, "send", &p2p.Regions{First: f.Read}, to, tag)
	if s == nil {
		c.flights.Leave(id)
		return ended(err)
	}
	h := &Handle{comm: c, done: make(chan struct{})}
	s.Follow(ctx, &h.waiters, func(err error) {
		h.err = c.explain(ctx, "send", err)
		c.flights.Leave(id)
		close(h.done)
	})
	return h
}

// SendVec sends the concatenation of regions as one message, as [Send] does. It does not copy long
// regions.
func SendVec[T any](ctx context.Context, c *Comm, regions [][]T, to int, tag Tag) error {
	r, _ := regionsOf(regions, false)
	r.Received = to == c.impl.Rank
	s, err := startSend[T](ctx, c, "send_vec", r, to, tag)
	return sent(ctx, c, "send_vec", s, err)
}

// Recv waits for a message with a tag from rank from and copies it into data, which may be longer
// than the message; from may be [AnyRank], this rank or [NoRank], and tag may be [AnyTag]. Until
// Recv returns, data must not be used. A Recv from a named rank waits for at most
// [Config].MessageTimeout, and one from AnyRank is limited by ctx alone. Ranks that wait for each other
// get a [DeadlockError].
//
// A message that is longer than data is lost, and the error is [ErrTruncated]. A message of another
// element type is lost, and the error is [ErrTypeMismatch]; all struct types count as one type, but
// the length of the message must be a multiple of the size of T. A Recv from a rank that has
// left, or from AnyRank when all other ranks have left, still gets the messages sent before, and then
// fails with a [PeerError].
//
// If ctx ends before a message has arrived, no message is lost and the communicator remains usable.
// If ctx ends while a message of more than 128 KiB is arriving, the communicator is revoked. For a
// shorter message, Recv first waits for half a second.
func Recv[T any](ctx context.Context, c *Comm, data []T, from int, tag Tag) (Status, error) {
	r, err := startRecv[T](ctx, c, "recv", &p2p.Regions{First: bytesOf(data)}, from, tag)
	if err != nil {
		return Status{}, err
	}
	return received[T](ctx, c, "recv", r)
}

// StartRecv starts a [Recv]; see [Handle]. [Handle.Status] describes the message. Receives that
// match the same messages get them in the order of the calls.
func StartRecv[T any](ctx context.Context, c *Comm, data []T, from int, tag Tag) *Handle {
	id, err := c.enterFlight(overlap.Flight{Name: "recv", Write: bytesOf(data)})
	if err != nil {
		return ended(opError("recv", err))
	}
	r, err := startRecv[T](ctx, c, "recv", &p2p.Regions{First: bytesOf(data)}, from, tag)
	if r == nil {
		c.flights.Leave(id)
		h := ended(err)
		if err == nil {
			h.status = noMessage()
		}
		return h
	}
	h := &Handle{comm: c, done: make(chan struct{})}
	r.Follow(ctx, &h.waiters, func(got p2p.Received, err error) {
		h.status, h.err = statusOf[T](ctx, c, "recv", got, err)
		c.flights.Leave(id)
		close(h.done)
	})
	return h
}

// RecvVec receives one message into regions, which it fills one after the other, as [Recv] does.
// Regions must not overlap. Any kind of send may have sent the message.
func RecvVec[T any](ctx context.Context, c *Comm, regions [][]T, from int, tag Tag) (Status, error) {
	into, err := regionsOf(regions, true)
	if err != nil {
		return Status{}, opError("recv_vec", err)
	}
	r, err := startRecv[T](ctx, c, "recv_vec", into, from, tag)
	if err != nil {
		return Status{}, err
	}
	return received[T](ctx, c, "recv_vec", r)
}

// Exchange sends src to rank to and receives a message from rank from into dst at the same time,
// so that ranks that exchange in pairs or along a ring do not deadlock. Both messages have
// the same tag. Either rank may be [NoRank], and from may be [AnyRank]. dst and src must not
// overlap.
//
// It behaves as a concurrent [Send] and [Recv]. If one of them fails, Exchange still waits for the
// other. If rank to has left or an argument is invalid, Exchange returns at once and has neither
// sent nor received.
func Exchange[T any](ctx context.Context, c *Comm, dst, src []T, to, from int, tag Tag) (Status, error) {
	s, r, err := startExchange(ctx, c, dst, src, to, from, tag)
	if err != nil {
		return Status{}, err
	}
	return exchanged[T](ctx, c, s, r)
}

// StartExchange starts an [Exchange]; see [Handle]. [Handle.Status] describes the received
// message.
func StartExchange[T any](ctx context.Context, c *Comm, dst, src []T, to, from int, tag Tag) *Handle {
	id, err := c.enterFlight(overlap.Flight{Name: "exchange", Write: bytesOf(dst), Read: bytesOf(src)})
	if err != nil {
		return ended(opError("exchange", err))
	}
	s, r, err := startExchange(ctx, c, dst, src, to, from, tag)
	if err != nil {
		c.flights.Leave(id)
		return ended(err)
	}
	h := &Handle{comm: c, done: make(chan struct{}), status: noMessage()}
	var left atomic.Int32 // of both messages
	left.Store(2)
	var sendErr error
	end := func() {
		if left.Add(-1) > 0 {
			return
		}
		h.err = cmp.Or(h.err, sendErr)
		c.flights.Leave(id)
		close(h.done)
	}
	if r == nil {
		left.Add(-1)
	} else {
		r.Follow(ctx, &h.waiters, func(got p2p.Received, err error) {
			h.status, h.err = statusOf[T](ctx, c, "exchange", got, err)
			end()
		})
	}
	if s == nil {
		end()
	} else {
		s.Follow(ctx, &h.waiters, func(err error) {
			sendErr = c.explain(ctx, "exchange", err)
			end()
		})
	}
	return h
}

// Probe waits for a message with a tag from rank from and describes it, so that the caller can
// allocate a buffer; from may be [AnyRank] or [NoRank], and tag may be [AnyTag]. The next matching
// receive gets the message. If several goroutines receive from the same ranks with the same tags,
// another one may get it: use [RecvAlloc] or [Comm.MatchedProbe] instead. If ctx ends first, the
// communicator remains usable.
//
// [Status].Count is in elements of T. If the length of the message is not a multiple of the size of
// T, Probe returns the [Status], with Count rounded down, and an [ErrTypeMismatch]. It does not check
// the element type otherwise; the receive does.
func Probe[T any](ctx context.Context, c *Comm, from int, tag Tag) (Status, error) {
	of, err := elementOf[T]()
	if err == nil {
		err = c.checkSource(ctx, from, tag)
	}
	if err != nil {
		return Status{}, opError("probe", err)
	}
	if from == NoRank {
		return noMessage(), nil
	}
	defer c.labels.Begin(ctx, "probe")()
	got, err := c.comm.Messages().Probe(ctx, from, int64(tag))
	if err != nil {
		return Status{}, c.explain(ctx, "probe", err)
	}
	if got.Bytes%int(of.Size) != 0 {
		err = c.explain(ctx, "probe", &p2p.MisfitError{Rank: got.Source, Size: got.Bytes, Room: got.Bytes, Elem: int(of.Size)})
	}
	return newStatus(got, of), err
}

// A Message is a message that [Comm.MatchedProbe] has taken. Only [RecvMatched] can receive it,
// once.
type Message struct {
	comm    *Comm
	matched *p2p.Matched // nil from NoRank
}

// Source returns the rank of the sender.
func (m *Message) Source() int { return m.received().Source }

// Tag returns the tag of the message.
func (m *Message) Tag() Tag { return Tag(m.received().Tag) }

// Bytes returns the length of the message in bytes.
func (m *Message) Bytes() int { return m.received().Bytes }

func (m *Message) received() p2p.Received {
	if m.matched == nil {
		return p2p.Received{Source: NoRank, Tag: int64(AnyTag)}
	}
	return m.matched.Received()
}

// MatchedProbe waits for a message with a tag from rank from and takes it, as MPI_Mprobe does, so
// that no other goroutine can receive it; from may be [AnyRank] or [NoRank], and tag may be
// [AnyTag]. The caller must receive the message by [RecvMatched]: until then it counts as
// unreceived for the limit of [Send]. If ctx ends first, no message is taken and the communicator
// remains usable.
func (c *Comm) MatchedProbe(ctx context.Context, from int, tag Tag) (*Message, error) {
	return c.matchedProbe(ctx, "matched_probe", from, tag)
}

// matchedProbe is MatchedProbe under the name of a call.
func (c *Comm) matchedProbe(ctx context.Context, name string, from int, tag Tag) (*Message, error) {
	if err := c.checkSource(ctx, from, tag); err != nil {
		return nil, opError(name, err)
	}
	if from == NoRank {
		return &Message{comm: c}, nil
	}
	m, err := c.comm.Messages().MatchedProbe(ctx, from, int64(tag))
	if err != nil {
		return nil, c.explain(ctx, name, err)
	}
	return &Message{c, m}, nil
}

// RecvMatched receives m into data, as [Recv] does. A second call for the same message fails with
// [ErrReceived].
func RecvMatched[T any](ctx context.Context, m *Message, data []T) (Status, error) {
	if err := m.comm.over(ctx); err != nil {
		return Status{}, opError("recv_matched", err)
	}
	return recvMatched(ctx, m, "recv_matched", data)
}

// RecvAlloc receives a message of any length, as [Recv] does, into a slice that it allocates. The slice from [NoRank] is empty.
func RecvAlloc[T any](ctx context.Context, c *Comm, from int, tag Tag) ([]T, Status, error) {
	of, err := elementOf[T]()
	if err != nil {
		return nil, Status{}, opError("recv_alloc", err)
	}
	m, err := c.matchedProbe(ctx, "recv_alloc", from, tag)
	if err != nil {
		return nil, Status{}, err
	}
	data := make([]T, (m.Bytes()+int(of.Size)-1)/int(of.Size)) // A part of an element is an error below.
	status, err := recvMatched(ctx, m, "recv_alloc", data)
	if err != nil {
		return nil, Status{}, err
	}
	return data, status, nil
}

// recvMatched begins to receive also if ctx has ended: a message that has arrived is not lost.
func recvMatched[T any](ctx context.Context, m *Message, name string, data []T) (Status, error) {
	of, err := elementOf[T]()
	if err != nil {
		return Status{}, opError(name, err)
	}
	if m.matched == nil {
		return noMessage(), nil
	}
	into := &p2p.Regions{First: bytesOf(data), Elem: int(of.Size)}
	r, ok, err := m.matched.StartRecv(into, of.Type)
	switch {
	case err != nil:
		return Status{}, m.comm.explain(ctx, name, err)
	case !ok:
		return Status{}, opError(name, ErrReceived)
	}
	return received[T](ctx, m.comm, name, r)
}

// regionsOf converts regions for package p2p. Written regions must not overlap.
func regionsOf[T any](regions [][]T, written bool) (r *p2p.Regions, err error) {
	r = new(p2p.Regions)
	for i, region := range regions {
		b := bytesOf(region)
		if i == 0 {
			r.First = b
			continue
		}
		r.More = append(r.More, b)
	}
	if !written {
		return r, nil
	}
	if i, j, found := overlap.First(append([][]byte{r.First}, r.More...)); found {
		return r, fmt.Errorf("%w: regions %d and %d share memory", ErrOverlap, i, j)
	}
	return r, nil
}

// startSend starts to send regions of elements of T. It returns nil if the send has ended, or
// failed.
func startSend[T any](ctx context.Context, c *Comm, name string, r *p2p.Regions, to int, tag Tag) (*p2p.Send, error) {
	of, err := elementOf[T]()
	if err != nil {
		return nil, opError(name, err)
	}
	return c.startSend(ctx, name, r, of.Type, to, tag)
}

// startSend is not generic: the compiler does not know in other packages that r does not escape.
func (c *Comm) startSend(ctx context.Context, name string, r *p2p.Regions, typ uint8, to int, tag Tag) (*p2p.Send, error) {
	if err := c.checkMessage(ctx, "to", to, tag); err != nil || to == NoRank {
		return nil, opError(name, err)
	}
	s, err := c.comm.Messages().StartSend(r, typ, to, int64(tag))
	if err == nil {
		return s, nil
	}
	began, warned, limit := time.Now(), false, c.node.config.DeadlockTimeout
	if most := c.node.config.MessageTimeout; most > 0 && (limit <= 0 || most < limit) {
		limit = most
	}
	for errors.Is(err, p2p.ErrNoReceive) {
		waited := time.Since(began)
		if limit > 0 && waited >= limit {
			return nil, opError(name, c.noReceive(waited, r.Len(), typ, tag))
		}
		if !warned && waited >= trace.StalledAfter {
			warned = true
			c.node.config.Log.Warn("this rank waits for itself", "deadlock", c.noReceive(waited, r.Len(), typ, tag), "fails after", limit)
		}
		select {
		case <-ctx.Done():
			return nil, opError(name, cancelled(ctx))
		case <-time.After(10 * time.Millisecond): // Another goroutine may be about to receive.
		}
		s, err = c.comm.Messages().StartSend(r, typ, to, int64(tag))
	}
	return s, c.explain(ctx, name, err)
}

// sent waits for a send that startSend has returned.
func sent(ctx context.Context, c *Comm, name string, s *p2p.Send, err error) error {
	if s == nil {
		return err
	}
	defer c.labels.Begin(ctx, name)()
	return c.explain(ctx, name, s.Wait(ctx))
}

// startRecv starts to receive elements of T into regions. It returns nil for NoRank.
func startRecv[T any](ctx context.Context, c *Comm, name string, r *p2p.Regions, from int, tag Tag) (*p2p.Receive, error) {
	of, err := elementOf[T]()
	if err != nil {
		return nil, opError(name, err)
	}
	r.Elem = int(of.Size)
	return c.startRecv(ctx, name, r, of.Type, from, tag)
}

// startRecv is not generic, as [Comm.startSend].
func (c *Comm) startRecv(ctx context.Context, name string, r *p2p.Regions, typ uint8, from int, tag Tag) (*p2p.Receive, error) {
	if err := c.checkSource(ctx, from, tag); err != nil || from == NoRank {
		return nil, opError(name, err)
	}
	receive, err := c.comm.Messages().StartRecv(r, typ, from, int64(tag))
	return receive, c.explain(ctx, name, err)
}

// received waits for a receive that startRecv has returned.
func received[T any](ctx context.Context, c *Comm, name string, r *p2p.Receive) (Status, error) {
	if r == nil {
		return noMessage(), nil
	}
	defer c.labels.Begin(ctx, name)()
	got, err := r.Wait(ctx)
	return statusOf[T](ctx, c, name, got, err)
}

// statusOf describes the results of a receive that has ended.
func statusOf[T any](ctx context.Context, c *Comm, name string, got p2p.Received, err error) (Status, error) {
	if err != nil {
		return Status{}, c.explain(ctx, name, err)
	}
	return newStatus(got, element{Size: uint32(unsafe.Sizeof(*new(T)))}), nil
}

// startExchange starts both messages, or neither unless the communicator ends in between.
func startExchange[T any](ctx context.Context, c *Comm, dst, src []T, to, from int, tag Tag) (*p2p.Send, *p2p.Receive, error) {
	const name = "exchange"
	if overlap.Two(bytesOf(dst), bytesOf(src)) {
		return nil, nil, opError(name, fmt.Errorf("%w: dst and src share memory", ErrOverlap))
	}
	if err := c.checkSource(ctx, from, tag); err != nil {
		return nil, nil, opError(name, err)
	}
	s, err := startSend[T](ctx, c, name, &p2p.Regions{First: bytesOf(src)}, to, tag)
	if err != nil {
		return nil, nil, err
	}
	r, err := startRecv[T](ctx, c, name, &p2p.Regions{First: bytesOf(dst)}, from, tag)
	if err != nil && s != nil {
		_ = s.Wait(ctx) // Until then src is in use.
	}
	return s, r, err
}

// exchanged waits for both messages.
func exchanged[T any](ctx context.Context, c *Comm, s *p2p.Send, r *p2p.Receive) (Status, error) {
	status, err := received[T](ctx, c, "exchange", r)
	return status, cmp.Or(err, sent(ctx, c, "exchange", s, nil))
}

func (c *Comm) checkSource(ctx context.Context, from int, tag Tag) error {
	if from == AnyRank {
		from = 0
	}
	if tag == AnyTag {
		tag = 0
	}
	return c.checkMessage(ctx, "from", from, tag)
}

// checkMessage checks the arguments of a message. side names its other rank in errors: "to" or
// "from".
func (c *Comm) checkMessage(ctx context.Context, side string, rank int, tag Tag) error {
	switch {
	case tag == AnyTag:
		return fmt.Errorf("%w: %d (AnyTag): only a receive or a probe accepts it: use a tag of at least 0", ErrInvalidTag, tag)
	case tag < 0:
		return fmt.Errorf("%w: %d: must be at least 0", ErrInvalidTag, tag)
	case rank == NoRank:
		return cmp.Or(c.Err(), c.over(ctx))
	case rank == AnyRank:
		return fmt.Errorf("%w: %s rank %d (AnyRank) of %d ranks: only a receive or a probe accepts it", ErrInvalidRank, side, rank, c.Size())
	case rank < 0 || rank >= c.Size():
		return fmt.Errorf("%w: %s rank %d of %d ranks", ErrInvalidRank, side, rank, c.Size())
	}
	return c.over(ctx)
}
