package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestProbe: a rank that does not know the incoming messages probes for the next one,
// allocates room for it, and receives exactly that one. All arrive, in order.
func TestProbe(t *testing.T) {
	for _, m := range worldtest.MessageMedia() {
		asks := []stream{{from: nexar.AnyRank, tag: nexar.AnyTag}, {from: 0, tag: nexar.AnyTag}, {from: nexar.AnyRank, tag: 1}, {from: 2, tag: 0}}
		perStream := len(streamLengths)
		if m.Name != worldtest.Mem().Name || worldtest.Brief() {
			asks, perStream = asks[:2], perStream/2
		}
		for _, ask := range asks {
			t.Run(fmt.Sprintf("%s/from %d, tag %d", m.Name, ask.from, ask.tag), func(t *testing.T) {
				m.Require(t)
				x := exchange{comms: m.Cluster(t, 3, nexar.Config{}), perStream: perStream}
				ctx, cancel := context.WithTimeout(t.Context(), 3*worldtest.Patience)
				defer cancel()
				x.fail = func(format string, args ...any) {
					t.Errorf(format, args...)
					cancel()
				}
				var sending sync.WaitGroup
				sending.Go(func() { x.send(ctx) })
				var probing sync.WaitGroup
				for rank, c := range x.comms {
					probing.Go(func() {
						next := make(map[stream]int)
						if err := x.probeAll(ctx, c, ask, next); err != nil {
							x.fail("rank %d: %v", rank, err)
							return
						}
						// The other messages stay until a receive matches them.
						if err := x.probeAll(ctx, c, stream{from: nexar.AnyRank, tag: nexar.AnyTag}, next); err != nil {
							x.fail("rank %d: %v", rank, err)
						}
					})
				}
				probing.Wait()
				sending.Wait()
			})
		}
	}
}

// probeAll receives all messages of the streams that match ask. next has the number of
// received messages of each stream.
func (x *exchange) probeAll(ctx context.Context, c *nexar.Comm, ask stream, next map[stream]int) error {
	missing := 0
	for _, s := range x.streams(c.Rank(), true) {
		if (ask.from == nexar.AnyRank || ask.from == s.from) && (ask.tag == nexar.AnyTag || ask.tag == s.tag) {
			missing += x.perStream - next[s]
		}
	}
	for range missing {
		probed, err := nexar.Probe[int32](ctx, c, ask.from, ask.tag)
		if err != nil {
			return err
		}
		if ask.from != nexar.AnyRank && ask.from != probed.Source || ask.tag != nexar.AnyTag && ask.tag != probed.Tag {
			return fmt.Errorf("probed %+v, asked for %+v", probed, ask)
		}
		buf := make([]int32, probed.Count)
		got, err := nexar.Recv(ctx, c, buf, probed.Source, probed.Tag)
		if err != nil || got != probed {
			return fmt.Errorf("received %+v, %w, probed %+v", got, err, probed)
		}
		s := stream{got.Source, c.Rank(), got.Tag}
		if err := s.check(next[s], got, buf); err != nil {
			return err
		}
		next[s]++
	}
	return nil
}

// TestProbeOfElements: a Probe counts elements of its own type, not of the sender's.
func TestProbeOfElements(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	type point [3]int32
	if err := nexar.Send(ctx, comms[0], make([]point, 10), 1, 3); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		probe func(ctx context.Context, c *nexar.Comm, from int, tag nexar.Tag) (nexar.Status, error)
		count int
	}{
		"points": {nexar.Probe[point], 10},
		"bytes":  {nexar.Probe[byte], 120},
		"words":  {nexar.Probe[uint64], 15},
		"larger": {nexar.Probe[[5]point], 2},
	} {
		if got, err := test.probe(ctx, comms[1], nexar.AnyRank, nexar.AnyTag); err != nil || got != (nexar.Status{Source: 0, Tag: 3, Count: test.count}) {
			t.Errorf("%s: %+v, %v, want %d", name, got, err, test.count)
		}
	}
	if _, err := nexar.Probe[*int](ctx, comms[1], 0, 3); !errors.Is(err, nexar.ErrInvalidType) {
		t.Errorf("pointers: %v, want ErrInvalidType", err)
	}
	if _, err := nexar.Recv(ctx, comms[1], make([]uint64, 15), 0, 3); !errors.Is(err, nexar.ErrTypeMismatch) {
		t.Errorf("Recv: %v, want ErrTypeMismatch", err)
	}
}

// TestProbeInvalid: an invalid argument is an error that names it.
func TestProbeInvalid(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(worldtest.ErrCancelled)
	for _, test := range []struct {
		ctx  context.Context
		from int
		tag  nexar.Tag
		want error
		text string
	}{
		{t.Context(), 2, 0, nexar.ErrInvalidRank, "nexar: probe: invalid rank: from rank 2 of 2 ranks"},
		{t.Context(), -3, 0, nexar.ErrInvalidRank, "nexar: probe: invalid rank: from rank -3 of 2 ranks"},
		{t.Context(), 1, -2, nexar.ErrInvalidTag, "nexar: probe: invalid tag: -2: must be at least 0"},
		{ended, 1, 0, worldtest.ErrCancelled, "nexar: probe: context canceled: cancelled by the test"},
	} {
		if _, err := nexar.Probe[int8](test.ctx, comms[0], test.from, test.tag); !errors.Is(err, test.want) || err.Error() != test.text {
			t.Errorf("from %d, tag %d: %v, want %q", test.from, test.tag, err, test.text)
		}
	}
	worldtest.CheckWorks(t, comms)
}

// TestProbeByMany: several goroutines probe; each message goes to one of them. At the end
// none of them waits.
func TestProbeByMany(t *testing.T) {
	const goroutines, messages = 6, 300
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.Sim(), worldtest.SHM()) {
		t.Run(m.Name, func(t *testing.T) {
			m.Require(t)
			comms := m.Cluster(t, 2, nexar.Config{})
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			var received [messages]atomic.Int32
			var count atomic.Int32
			var all sync.WaitGroup
			for g := range goroutines {
				all.Go(func() {
					for {
						err := probeOne(ctx, comms[1], &received, g%2 == 0)
						if count.Load() == messages && errors.Is(err, worldtest.ErrCancelled) {
							return
						}
						if err != nil {
							t.Error(err)
							cancel(err)
							return
						}
						if count.Add(1) == messages {
							cancel(worldtest.ErrCancelled)
						}
					}
				})
			}
			for k := range messages {
				if err := nexar.Send(t.Context(), comms[0], slicesOf(k, []int{1, 20_000, 3}[k%3]), 1, nexar.Tag(k%2)); err != nil {
					t.Fatal(err)
				}
			}
			all.Wait()
			for k := range received {
				if n := received[k].Load(); n != 1 {
					t.Errorf("message %d was received %d times", k, n)
				}
			}
			worldtest.CheckWorks(t, comms)
		})
	}
}

// slicesOf returns n elements of value k.
func slicesOf(k, n int) []int32 {
	x := make([]int32, n)
	for i := range x {
		x[i] = int32(k)
	}
	return x
}

// probeOne probes and receives one message: the one found, or a later one if another
// goroutine was faster.
func probeOne(ctx context.Context, c *nexar.Comm, received *[300]atomic.Int32, anyTag bool) error {
	from, tag := 0, nexar.Tag(1)
	if anyTag {
		from, tag = nexar.AnyRank, nexar.AnyTag
	}
	if _, err := nexar.Probe[int32](ctx, c, from, tag); err != nil {
		return err
	}
	buf := make([]int32, 20_000)
	got, err := nexar.Recv(ctx, c, buf, from, nexar.AnyTag)
	if err != nil {
		return err
	}
	k := buf[0]
	for _, x := range buf[:got.Count] {
		if x != k {
			return fmt.Errorf("message %d has an element %d", k, x)
		}
	}
	received[k].Add(1)
	return nil
}

// TestProbeInProgress: a Probe ends with its context, when the communicator is closed or
// revoked, and when the rank that it waits for has ended. Otherwise the communicator goes
// on.
func TestProbeInProgress(t *testing.T) {
	for _, m := range worldtest.MessageMedia() {
		for name, test := range map[string]struct {
			end  func(w *worldtest.World, cancel context.CancelCauseFunc)
			want error
			text string
		}{
			"cancelled": {func(_ *worldtest.World, cancel context.CancelCauseFunc) { cancel(worldtest.ErrCancelled) }, worldtest.ErrCancelled,
				"nexar: probe: context canceled: cancelled by the test"},
			"closed": {func(w *worldtest.World, _ context.CancelCauseFunc) { w.Comms[0].Close() }, nexar.ErrClosed, "nexar: probe: closed by this rank"},
			"left":   {func(w *worldtest.World, _ context.CancelCauseFunc) { w.Comms[1].Close() }, nexar.ErrPeerFailed, "nexar: probe: rank 1 "},
			"revoked": {func(w *worldtest.World, _ context.CancelCauseFunc) {
				worldtest.Revoke(w.Comms[2], worldtest.ErrCancelled)
			}, nexar.ErrRevoked, "nexar: probe: communicator revoked by rank 2: "},
			"died": {func(w *worldtest.World, _ context.CancelCauseFunc) { w.Kill(1) }, nexar.ErrPeerFailed, "rank 1 "},
		} {
			t.Run(m.Name+"/"+name, func(t *testing.T) {
				m.Require(t)
				t.Parallel()
				w := m.World(t, 3, nexar.Config{})
				comms := w.Comms
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				probed := make(chan error, 1)
				go func() {
					_, err := nexar.Probe[int8](ctx, comms[0], 1, nexar.AnyTag)
					probed <- err
				}()
				time.Sleep(5 * time.Millisecond) // It usually waits by then.
				test.end(w, cancel)
				if err := <-probed; !errors.Is(err, test.want) || !worldtest.HasText(err, test.text) {
					t.Errorf("%v, want %v and %q", err, test.want, test.text)
				}
				if name == "cancelled" {
					worldtest.CheckWorks(t, comms)
				}
			})
		}
	}
}
