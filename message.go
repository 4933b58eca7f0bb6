package nexar

import (
	"cmp"
	"context"
	"fmt"
	"unsafe"

	"github.com/nexar-go/nexar/internal/overlap"
	"github.com/nexar-go/nexar/internal/p2p"
)

// A Tag tells messages apart. Messages have tags of 0 and more.
type Tag int64

const (
	// AnyRank makes Recv take a message from every rank.
	AnyRank = p2p.Any
	// AnyTag makes Recv take a message with every tag.
	AnyTag Tag = p2p.Any
)

// A Status describes a message that Recv has received.
type Status struct {
	Source int // the rank that sent it
	Tag    Tag
	Count  int // elements
}

// Send sends data to rank to, which may be this one. It returns when data may
// be used again: at once for a message of at most 64 KiB, as long as the
// receiver has left less than 1 MiB of this rank's messages unreceived (each
// counts for 64 bytes more than it holds), otherwise when the receiver has
// taken it. Messages from one rank to another with the same tag arrive in the
// order of the Sends.
//
// If ctx ends while a message waits for its receiver, the communicator is
// revoked. A message that has waited, and that the receiver has no room for, or
// only for another type, is an ErrTruncated or ErrTypeMismatch here as well as
// there.
func Send[T any](ctx context.Context, c *Comm, data []T, to int, tag Tag) error {
	s, err := startSend[T](ctx, c, "send", p2p.Bytes(bytesOf(data)), to, tag)
	if s == nil {
		return err
	}
	return c.explain(ctx, "send", s.Wait(ctx))
}

// StartSend begins a Send; see Handle. Messages are sent in the order of the
// calls.
func StartSend[T any](ctx context.Context, c *Comm, data []T, to int, tag Tag) *Handle {
	f := overlap.Flight{Name: "send", Read: bytesOf(data)}
	id, err := c.enterFlight(f)
	if err != nil {
		return ended(opError("send", err))
	}
	s, err := startSend[T](ctx, c, "send", p2p.Bytes(f.Read), to, tag)
	if s == nil {
		c.flights.Leave(id)
		return ended(err)
	}
	return c.follow(func(*Handle) error {
		defer c.flights.Leave(id)
		return c.explain(ctx, "send", s.Wait(ctx))
	})
}

// SendVec sends the content of several regions, in their order, as one message, as
// Send does. Long regions are not copied.
func SendVec[T any](ctx context.Context, c *Comm, regions [][]T, to int, tag Tag) error {
	r, _ := regionsOf(regions, false)
	s, err := startSend[T](ctx, c, "send_vec", r, to, tag)
	if s == nil {
		return err
	}
	return c.explain(ctx, "send_vec", s.Wait(ctx))
}

// Recv receives a message from rank from with tag into data, which may be
// longer than the message. from may be AnyRank and tag AnyTag. A message that
// is longer than data, or of another type, is lost: ErrTruncated or
// ErrTypeMismatch. Structs of any type are one type here, but a message of no
// whole number of elements of T is of another one.
//
// If ctx ends before a message has come, nothing has happened, and the
// communicator goes on. If it ends while a message of more than 64 KiB is coming in,
// the communicator is revoked; for a shorter one Recv waits half a second more, and it
// is revoked if that has not come by then. data must not be used until Recv returns. A
// Recv from AnyRank fails when all other ranks have left.
func Recv[T any](ctx context.Context, c *Comm, data []T, from int, tag Tag) (Status, error) {
	r, err := startRecv[T](ctx, c, "recv", p2p.Bytes(bytesOf(data)), from, tag)
	if err != nil {
		return Status{}, err
	}
	return received[T](ctx, c, "recv", r)
}

// StartRecv starts a Recv; see Handle. Handle.Status describes the message.
// Receives that could take the same message get it in the order of the calls.
func StartRecv[T any](ctx context.Context, c *Comm, data []T, from int, tag Tag) *Handle {
	id, err := c.enterFlight(overlap.Flight{Name: "recv", Write: bytesOf(data)})
	if err != nil {
		return ended(opError("recv", err))
	}
	r, err := startRecv[T](ctx, c, "recv", p2p.Bytes(bytesOf(data)), from, tag)
	if err != nil {
		c.flights.Leave(id)
		return ended(err)
	}
	return c.follow(func(h *Handle) (err error) {
		defer c.flights.Leave(id)
		h.status, err = received[T](ctx, c, "recv", r)
		return err
	})
}

// RecvVec receives a message into several regions, filling one after the other,
// as Recv does. It need not have been sent by SendVec.
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

// Exchange sends src to rank to and receives a message from rank from into dst,
// at the same time, so that ranks that exchange with each other, or in a ring,
// do not wait for each other in vain. Both messages have the same tag; from may
// be AnyRank. dst and src must not share memory. Otherwise it is a Send and a
// Recv: if one of them fails, the other has been waited for all the same. If the
// Send cannot begin, because rank to has left or an argument is wrong, nothing
// has happened.
func Exchange[T any](ctx context.Context, c *Comm, dst, src []T, to, from int, tag Tag) (Status, error) {
	if overlap.Two(bytesOf(dst), bytesOf(src)) {
		return Status{}, opError("exchange", fmt.Errorf("%w: dst and src share memory", ErrOverlap))
	}
	s, r, err := startExchange(ctx, c, dst, src, to, from, tag)
	if err != nil {
		return Status{}, err
	}
	return exchanged[T](ctx, c, s, r)
}

// StartExchange starts an Exchange; see Handle. Handle.Status describes the message.
func StartExchange[T any](ctx context.Context, c *Comm, dst, src []T, to, from int, tag Tag) *Handle {
	if overlap.Two(bytesOf(dst), bytesOf(src)) {
		return ended(opError("exchange", fmt.Errorf("%w: dst and src share memory", ErrOverlap)))
	}
	id, err := c.enterFlight(overlap.Flight{Name: "exchange", Write: bytesOf(dst), Read: bytesOf(src)})
	if err != nil {
		return ended(opError("exchange", err))
	}
	s, r, err := startExchange(ctx, c, dst, src, to, from, tag)
	if err != nil {
		c.flights.Leave(id)
		return ended(err)
	}
	return c.follow(func(h *Handle) (err error) {
		defer c.flights.Leave(id)
		h.status, err = exchanged[T](ctx, c, s, r)
		return err
	})
}

// Probe waits until there is a message from rank from with tag, which may be AnyRank
// and AnyTag, and describes it, so that the caller can allocate a buffer. The message
// stays there for the next Recv that matches it. If several goroutines probe for the
// same message, all return, and only one can receive it. If ctx ends before that,
// nothing has happened. Count is in elements of T. If the message has elements of
// another type, Recv will report that; Probe returns an ErrTypeMismatch, with a Status
// that describes the message, only if its length is no multiple of the size of T.
func Probe[T any](ctx context.Context, c *Comm, from int, tag Tag) (Status, error) {
	of, err := elementOf[T]()
	if err == nil {
		err = c.checkSource(ctx, from, tag)
	}
	if err != nil {
		return Status{}, opError("probe", err)
	}
	got, err := c.comm.Messages().Probe(ctx, from, int64(tag))
	if err != nil {
		return Status{}, c.explain(ctx, "probe", err)
	}
	if got.Bytes%int(of.size) != 0 {
		err = c.explain(ctx, "probe", &p2p.ElementError{Source: got.Source, Size: got.Bytes, Elem: int(of.size)})
	}
	return Status{Source: got.Source, Tag: Tag(got.Tag), Count: got.Bytes / int(of.size)}, err
}

// A Message is a message that [Comm.MatchedProbe] has taken. It belongs to the caller:
// [RecvMatched] receives it, once, and no other receive gets it.
type Message struct {
	comm    *Comm
	matched *p2p.Matched
}

// Source returns the rank that has sent the message.
func (m *Message) Source() int { return m.matched.Received().Source }

// Tag returns the tag of the message.
func (m *Message) Tag() Tag { return Tag(m.matched.Received().Tag) }

// Bytes returns the length of the message in bytes.
func (m *Message) Bytes() int { return m.matched.Received().Bytes }

// MatchedProbe waits for a message from rank from with tag, which may be [AnyRank] and
// [AnyTag], and takes it, as MPI_Mprobe does: several goroutines that receive messages of
// unknown length do not take each other's. The message has to be received by [RecvMatched];
// until then it counts for its sender as unreceived. If ctx ends before a message has
// arrived, nothing has happened.
func (c *Comm) MatchedProbe(ctx context.Context, from int, tag Tag) (*Message, error) {
	const name = "matched_probe"
	if err := c.checkSource(ctx, from, tag); err != nil {
		return nil, opError(name, err)
	}
	m, err := c.comm.Messages().MatchedProbe(ctx, from, int64(tag))
	if err != nil {
		return nil, c.explain(ctx, name, err)
	}
	return &Message{c, m}, nil
}

// RecvMatched receives m into data, which may be longer than the message, as [Recv] does. A
// message can be received once; a second call fails with [ErrReceived].
func RecvMatched[T any](ctx context.Context, m *Message, data []T) (Status, error) {
	return recvMatched(ctx, m, "recv_matched", data)
}

// RecvAlloc receives a message of any length, as [Recv] does, into a slice that it
// allocates.
func RecvAlloc[T any](ctx context.Context, c *Comm, from int, tag Tag) ([]T, Status, error) {
	const name = "recv_alloc"
	of, err := elementOf[T]()
	if err == nil {
		err = c.checkSource(ctx, from, tag)
	}
	if err != nil {
		return nil, Status{}, opError(name, err)
	}
	m, err := c.comm.Messages().MatchedProbe(ctx, from, int64(tag))
	if err != nil {
		return nil, Status{}, c.explain(ctx, name, err)
	}
	size := int(of.size)
	data := make([]T, (m.Received().Bytes+size-1)/size) // A part of an element is an error below.
	status, err := recvMatched(ctx, &Message{c, m}, name, data)
	if err != nil {
		return nil, Status{}, err
	}
	return data, status, nil
}

func recvMatched[T any](ctx context.Context, m *Message, name string, data []T) (Status, error) {
	of, err := elementOf[T]()
	if err == nil {
		err = m.comm.over(ctx)
	}
	if err != nil {
		return Status{}, opError(name, err)
	}
	into := p2p.Bytes(bytesOf(data))
	into.Elem = int(of.size)
	r, ok, err := m.matched.StartRecv(into, of.typ)
	switch {
	case err != nil:
		return Status{}, m.comm.explain(ctx, name, err)
	case !ok:
		return Status{}, opError(name, ErrReceived)
	}
	return received[T](ctx, m.comm, name, r)
}

// regionsOf are regions as the engine takes them. If they are written they must
// not overlap.
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

// startSend begins to send regions of elements of T. Without an error and a
// Sending all is done.
func startSend[T any](ctx context.Context, c *Comm, name string, r *p2p.Regions, to int, tag Tag) (*p2p.Send, error) {
	of, err := elementOf[T]()
	if err == nil {
		err = c.checkMessage(ctx, "to", to, tag)
	}
	if err != nil {
		return nil, opError(name, err)
	}
	s, err := c.comm.Messages().StartSend(r, of.typ, to, int64(tag))
	return s, c.explain(ctx, name, err)
}

// startRecv begins to receive elements of T into regions.
func startRecv[T any](ctx context.Context, c *Comm, name string, r *p2p.Regions, from int, tag Tag) (*p2p.Receive, error) {
	of, err := elementOf[T]()
	if err == nil {
		err = c.checkSource(ctx, from, tag)
	}
	if err != nil {
		return nil, opError(name, err)
	}
	r.Elem = int(of.size)
	receive, err := c.comm.Messages().StartRecv(r, of.typ, from, int64(tag))
	return receive, c.explain(ctx, name, err)
}

// received waits for the end of a receive.
func received[T any](ctx context.Context, c *Comm, name string, r *p2p.Receive) (Status, error) {
	got, err := r.Wait(ctx)
	if err != nil {
		return Status{}, c.explain(ctx, name, err)
	}
	return Status{Source: got.Source, Tag: Tag(got.Tag), Count: got.Bytes / int(unsafe.Sizeof(*new(T)))}, nil
}

// startExchange begins both messages, or none unless the communicator ends in
// between. All is sent if there is no Sending.
func startExchange[T any](ctx context.Context, c *Comm, dst, src []T, to, from int, tag Tag) (*p2p.Send, *p2p.Receive, error) {
	const name = "exchange"
	if err := c.checkSource(ctx, from, tag); err != nil {
		return nil, nil, opError(name, err)
	}
	s, err := startSend[T](ctx, c, name, p2p.Bytes(bytesOf(src)), to, tag)
	if err != nil {
		return nil, nil, err
	}
	r, err := startRecv[T](ctx, c, name, p2p.Bytes(bytesOf(dst)), from, tag)
	if err != nil && s != nil {
		_ = s.Wait(ctx) // Until then src is in use.
	}
	return s, r, err
}

// exchanged waits for both messages.
func exchanged[T any](ctx context.Context, c *Comm, s *p2p.Send, r *p2p.Receive) (Status, error) {
	const name = "exchange"
	status, err := received[T](ctx, c, name, r)
	if s != nil {
		err = cmp.Or(err, c.explain(ctx, name, s.Wait(ctx)))
	}
	return status, err
}

func (c *Comm) checkSource(ctx context.Context, from int, tag Tag) error {
	checkFrom, checkTag := max(from, 0), max(tag, 0)
	if from != AnyRank {
		checkFrom = from
	}
	if tag != AnyTag {
		checkTag = tag
	}
	return c.checkMessage(ctx, "from", checkFrom, checkTag)
}

func (c *Comm) checkMessage(ctx context.Context, what string, rank int, tag Tag) error {
	switch {
	case rank < 0 || rank >= c.Size():
		return fmt.Errorf("%w: %s rank %d of %d ranks", ErrInvalidRank, what, rank, c.Size())
	case tag < 0:
		return fmt.Errorf("%w: %d", ErrInvalidTag, tag)
	}
	return c.over(ctx)
}
