package conformance

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/test/worldtest"
)

// A parcel is a message of a random program. Its first element identifies it.
type parcel struct {
	from, to int
	tag      nexar.Tag
	id       int // its number among the messages of its sender
	count    int // elements, at least one
	started  bool
	regions  bool
}

// A request is a receive of a random program. Requests are posted in the order of a list.
type request struct {
	from int
	tag  nexar.Tag
	got  *parcel // nil if it was cancelled
}

// takes reports whether a request matches a parcel.
func (r request) takes(p parcel) bool {
	return (r.from == nexar.AnyRank || r.from == p.from) && (r.tag == nexar.AnyTag || r.tag == p.tag)
}

// A receiver receives the messages for one rank in random ways.
type receiver struct {
	comm     *nexar.Comm
	parcels  [][]parcel // by sender
	first    int        // receives to post before any message is sent
	draws    []int      // its random actions, repeated
	requests []request  // all of its receives, in order
	pending  []pendingRequest
	came     int
}

type pendingRequest struct {
	index  int // among requests
	handle *nexar.Handle
	buf    []int32
}

const (
	parcelTags    = 3
	parcelLongest = 100_000
	pendingMost   = 8 // receives of a rank
)

func drawParcel(n int) *rapid.Generator[parcel] {
	return rapid.Custom(func(r *rapid.T) parcel {
		return parcel{
			to:      rapid.IntRange(0, n-1).Draw(r, "to"),
			tag:     nexar.Tag(rapid.IntRange(0, parcelTags-1).Draw(r, "tag")),
			count:   rapid.SampledFrom([]int{1, 2, 100, wire.PayloadMax / 4, wire.PayloadMax/4 + 1, parcelLongest}).Draw(r, "count"),
			started: rapid.Bool().Draw(r, "started"),
			regions: rapid.IntRange(0, 3).Draw(r, "regions") == 0,
		}
	})
}

// TestRandomMessages runs random programs of messages between all ranks, with blocking
// and started calls, receives from given and from any ranks, and probes. It checks the
// rules of matching: each message arrives once, and none overtakes an earlier one of its
// sender that the same receive could have matched.
func TestRandomMessages(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.Sim(), worldtest.SHM()) {
		t.Run(m.Name, func(t *testing.T) {
			m.Require(t)
			rapid.Check(t, func(r *rapid.T) {
				n := rapid.IntRange(1, 4).Draw(r, "ranks")
				parcels := make([][]parcel, n)
				receivers := make([]*receiver, n)
				for rank := range n {
					parcels[rank] = rapid.SliceOfN(drawParcel(n), 0, 20).Draw(r, "parcels")
					for id := range parcels[rank] {
						parcels[rank][id].from, parcels[rank][id].id = rank, id
					}
					draws := rapid.SliceOfN(rapid.IntRange(0, 99), 1, 20).Draw(r, "draws")
					first := rapid.IntRange(0, pendingMost).Draw(r, "first")
					receivers[rank] = &receiver{parcels: parcels, first: first, draws: draws}
				}
				if err := runParcels(t.Context(), m, receivers); err != nil {
					r.Fatal(err)
				}
			})
		})
	}
}

func runParcels(ctx context.Context, m worldtest.Medium, receivers []*receiver) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 2*worldtest.Patience)
	defer cancel()
	comms, closing, err := m.Form(ctx, len(receivers), nexar.Config{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closing()) }()
	return worldtest.ForEach(len(receivers), func(rank int) error {
		x := receivers[rank]
		x.comm = comms[rank]
		err := x.run(ctx)
		if err != nil {
			cancel() // No rank may wait for a message that is never sent.
		}
		return err
	})
}

// run sends and receives all messages of a rank.
func (x *receiver) run(ctx context.Context) error {
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	for i := range x.first {
		x.start(waiting, x.draws[i%len(x.draws)])
	}
	if err := x.comm.Barrier(ctx); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() { sent <- sendParcels(ctx, x.comm, x.parcels[x.comm.Rank()]) }()
	err := x.receiveAll(ctx, waiting)
	stop(worldtest.ErrCancelled)
	err = errors.Join(err, x.collect(func(*nexar.Handle) bool { return true }))
	if err != nil {
		return err
	}
	return errors.Join(<-sent, x.check())
}

func sendParcels(ctx context.Context, c *nexar.Comm, parcels []parcel) error {
	var handles []*nexar.Handle
	for _, p := range parcels {
		data := make([]int32, p.count)
		data[0] = int32(p.id)
		var err error
		switch {
		case p.started:
			handles = append(handles, nexar.StartSend(ctx, c, data, p.to, p.tag))
		case p.regions:
			err = nexar.SendVec(ctx, c, [][]int32{data[:1], nil, data[1:]}, p.to, p.tag)
		default:
			err = nexar.Send(ctx, c, data, p.to, p.tag)
		}
		if err != nil {
			return fmt.Errorf("%+v: %w", p, err)
		}
	}
	return nexar.WaitAll(handles...)
}

// receiveAll receives all messages for the rank. The receives that it starts run until it
// returns.
func (x *receiver) receiveAll(ctx, waiting context.Context) error {
	expected := 0
	for _, list := range x.parcels {
		for _, p := range list {
			if p.to == x.comm.Rank() {
				expected++
			}
		}
	}
	for i := 0; x.came < expected; i++ {
		draw := x.draws[i%len(x.draws)]
		var err error
		if draw%3 == 0 && len(x.pending) < pendingMost {
			x.start(waiting, draw)
		} else {
			err = x.probe(ctx, draw)
		}
		if err == nil {
			err = x.probe(ctx, -1) // The other messages must be received too.
		}
		if err == nil {
			err = x.collect(isDone)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func isDone(h *nexar.Handle) bool {
	select {
	case <-h.Done():
		return true
	default:
		return false
	}
}

// pattern returns the source and tag for a number; -1 is any.
func (x *receiver) pattern(draw int) (from int, tag nexar.Tag) {
	if draw < 0 {
		return nexar.AnyRank, nexar.AnyTag
	}
	return draw%(x.comm.Size()+1) - 1, nexar.Tag(draw/8%(parcelTags+1) - 1)
}

// start starts a receive.
func (x *receiver) start(ctx context.Context, draw int) {
	from, tag := x.pattern(draw)
	buf := make([]int32, parcelLongest)
	h := nexar.StartRecv(ctx, x.comm, buf, from, tag)
	x.pending = append(x.pending, pendingRequest{len(x.requests), h, buf})
	x.requests = append(x.requests, request{from: from, tag: tag})
}

// probe probes for a message, and receives it if one arrives soon.
func (x *receiver) probe(ctx context.Context, draw int) error {
	from, tag := x.pattern(draw)
	short, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	probed, err := nexar.Probe[int32](short, x.comm, from, tag)
	if err != nil {
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			return nil
		}
		return err
	}
	buf := make([]int32, probed.Count)
	got, err := nexar.Recv(ctx, x.comm, buf, probed.Source, probed.Tag)
	if err != nil || got != probed {
		return fmt.Errorf("received %+v, %w, after a probe for rank %d and tag %d that returned %+v", got, err, from, tag, probed)
	}
	x.requests = append(x.requests, request{from: probed.Source, tag: probed.Tag})
	return x.take(len(x.requests)-1, got, buf)
}

// collect takes the results of the receives that have ended.
func (x *receiver) collect(over func(h *nexar.Handle) bool) error {
	var still []pendingRequest
	for _, p := range x.pending {
		if !over(p.handle) {
			still = append(still, p)
			continue
		}
		switch err := p.handle.Wait(); {
		case errors.Is(err, worldtest.ErrCancelled):
		case err != nil:
			return err
		default:
			if err := x.take(p.index, p.handle.Status(), p.buf); err != nil {
				return err
			}
		}
	}
	x.pending = still
	return nil
}

// take records the result of a receive.
func (x *receiver) take(index int, got nexar.Status, buf []int32) error {
	list := x.parcels[got.Source]
	if id := int(buf[0]); id < len(list) {
		if p := list[id]; p.to == x.comm.Rank() && p.tag == got.Tag && p.count == got.Count && x.requests[index].takes(p) {
			x.requests[index].got = &p
			x.came++
			return nil
		}
	}
	return fmt.Errorf("receive %d of rank %d, %+v, has got %+v with the number %d", index, x.comm.Rank(), x.requests[index], got, buf[0])
}

// check looks for messages that were received twice, and for overtaking. A cancelled
// receive was posted until all messages had arrived.
func (x *receiver) check() error {
	for i, r := range x.requests {
		for _, later := range x.requests[i+1:] {
			if later.got == nil {
				continue
			}
			q := *later.got
			switch {
			case r.got == nil && r.takes(q):
				return fmt.Errorf("rank %d: %+v has passed %+v by, which waited", x.comm.Rank(), q, r)
			case r.got == nil || r.got.from != q.from || r.got.id < q.id:
			case r.got.id == q.id:
				return fmt.Errorf("rank %d has got %+v twice", x.comm.Rank(), q)
			case r.takes(q):
				return fmt.Errorf("rank %d: the later message %+v was received before %+v by %+v", x.comm.Rank(), *r.got, q, r)
			}
		}
	}
	return nil
}
