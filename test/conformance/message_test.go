package conformance

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/test/worldtest"
)

// A stream is the messages from one rank to another with one tag.
type stream struct {
	from, to int
	tag      nexar.Tag
}

// streamLengths are the lengths of the messages of a stream, in elements of 4 bytes:
// empty, short, around the longest message without a grant, and around the longest piece.
var streamLengths = [...]int{3, 0, 16384, 1, 16385, 40_000, 16383, 7, 262_144, 100, 300_001, 2}

// element returns the i-th element of the k-th message of a stream.
//
//go:norace
func (s stream) element(k, i int) int32 {
	return int32(worldtest.Mix(uint64(s.from)<<40|uint64(s.to)<<32|uint64(s.tag)<<24|uint64(k)<<16) + uint64(i)*2654435761)
}

//go:norace
func (s stream) message(k int) []int32 {
	data := make([]int32, streamLengths[k%len(streamLengths)])
	for i := range data {
		data[i] = s.element(k, i)
	}
	return data
}

// check checks the k-th message of a stream, in a buffer that was empty.
//
//go:norace
func (s stream) check(k int, got nexar.Status, buf []int32) error {
	want := nexar.Status{Source: s.from, Tag: s.tag, Count: streamLengths[k%len(streamLengths)]}
	if got != want {
		return fmt.Errorf("message %d of %+v: received %+v, want %+v", k, s, got, want)
	}
	for i, x := range buf {
		if i < got.Count && x != s.element(k, i) || i >= got.Count && x != 0 {
			return fmt.Errorf("message %d of %+v: element %d of %d is %d", k, s, i, got.Count, x)
		}
	}
	return nil
}

// TestMessages sends many messages of all lengths between all ranks, and from each to
// itself, with several tags and all at the same time.
func TestMessages(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.Sim(), worldtest.QUIC()) {
		for _, wild := range []struct {
			name        string
			rank, tag   bool // AnyRank, AnyTag
			postedFirst bool
		}{
			{name: "exact", postedFirst: true},
			{name: "exact, late"},
			{name: "any tag", tag: true},
			{name: "any rank", rank: true},
			{name: "any", rank: true, tag: true},
		} {
			if worldtest.Brief() && !wild.postedFirst && (m.Name != worldtest.Mem().Name || wild.rank != wild.tag) {
				continue
			}
			t.Run(m.Name+"/"+wild.name, func(t *testing.T) {
				x := exchange{comms: m.Cluster(t, 3, nexar.Config{}), anyRank: wild.rank, anyTag: wild.tag, perStream: 24}
				if m.Name != "mem" || worldtest.Brief() {
					x.perStream = len(streamLengths)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 3*worldtest.Patience)
				defer cancel()
				x.fail = func(format string, args ...any) {
					t.Errorf(format, args...)
					cancel() // so that no rank waits for a message that is never sent
				}
				var sending sync.WaitGroup
				if !wild.postedFirst {
					sending.Go(func() { x.send(ctx) })
					time.Sleep(5 * time.Millisecond) // so that some messages arrive before their receive
				}
				var receiving sync.WaitGroup
				receiving.Go(func() { x.receive(ctx) })
				if wild.postedFirst {
					time.Sleep(time.Millisecond)
					sending.Go(func() { x.send(ctx) })
				}
				sending.Wait()
				receiving.Wait()
			})
		}
	}
}

// An exchange is messages from all ranks to all ranks with the tags 0 to 2.
type exchange struct {
	fail            func(format string, args ...any)
	comms           []*nexar.Comm
	anyRank, anyTag bool
	perStream       int
}

const exchangeTags = 3

// streams returns the streams to a rank, or from it.
func (x *exchange) streams(rank int, to bool) (list []stream) {
	for other := range x.comms {
		for tag := range nexar.Tag(exchangeTags) {
			s := stream{other, rank, tag}
			if !to {
				s.from, s.to = rank, other
			}
			list = append(list, s)
		}
	}
	return list
}

func (x *exchange) send(ctx context.Context) {
	var senders sync.WaitGroup
	defer senders.Wait()
	for rank, c := range x.comms {
		for _, s := range x.streams(rank, false) {
			senders.Go(func() {
				for k := range x.perStream {
					if err := nexar.Send(ctx, c, s.message(k), s.to, s.tag); err != nil {
						x.fail("message %d of %+v: %v", k, s, err)
						return
					}
				}
			})
		}
	}
}

// receive starts a goroutine for each set of streams that a receive with AnyRank or AnyTag mixes.
func (x *exchange) receive(ctx context.Context) {
	var receivers sync.WaitGroup
	defer receivers.Wait()
	for rank, c := range x.comms {
		groups := make(map[stream][]stream)
		for _, s := range x.streams(rank, true) {
			as := s
			if x.anyRank {
				as.from = nexar.AnyRank
			}
			if x.anyTag {
				as.tag = nexar.AnyTag
			}
			groups[as] = append(groups[as], s)
		}
		for as, list := range groups {
			receivers.Go(func() {
				if err := x.receiveAs(ctx, c, as, list); err != nil {
					x.fail("rank %d: %v", rank, err)
				}
			})
		}
	}
}

// receiveAs receives several streams, each of them in order.
func (x *exchange) receiveAs(ctx context.Context, c *nexar.Comm, as stream, list []stream) error {
	next := make(map[stream]int)
	for range x.perStream * len(list) {
		room := 300_001
		if len(list) == 1 {
			room = streamLengths[next[list[0]]%len(streamLengths)]
		}
		buf := make([]int32, room)
		got, err := nexar.Recv(ctx, c, buf, as.from, as.tag)
		if err != nil {
			return err
		}
		s := stream{got.Source, as.to, got.Tag}
		if err := s.check(next[s], got, buf); err != nil {
			return err
		}
		next[s]++
	}
	for _, s := range list {
		if next[s] != x.perStream {
			return fmt.Errorf("%d messages of %+v, want %d", next[s], s, x.perStream)
		}
	}
	return nil
}

// TestMessageRefused: a message that its receiver refuses is lost, and both sides get an
// error if the sender still waits. The messages before and after it are not.
func TestMessageRefused(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.Sim(), worldtest.QUIC()) {
		for _, count := range []int{10, 100_000} {
			t.Run(fmt.Sprintf("%s/%d", m.Name, count), func(t *testing.T) {
				comms := m.Cluster(t, 2, nexar.Config{})
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
					defer cancel()
					if rank == 0 {
						return sendRefused(ctx, c, count)
					}
					return recvRefused(ctx, c, count)
				})
			})
		}
	}
}

func sendRefused(ctx context.Context, c *nexar.Comm, count int) error {
	granted := count*4 > wire.PayloadMax
	for i, want := range []error{nil, nexar.ErrTruncated, nexar.ErrTypeMismatch, nexar.ErrTypeMismatch, nil} {
		data := make([]int32, count)
		data[count-1] = int32(i)
		if !granted {
			want = nil
		}
		if err := nexar.Send(ctx, c, data, 1, 5); !errors.Is(err, want) || err == nil && want != nil {
			return fmt.Errorf("send %d: %v, want %v", i, err, want)
		}
	}
	return nil
}

func recvRefused(ctx context.Context, c *nexar.Comm, count int) error {
	data := make([]int32, count)
	short, other, longer := make([]int32, count-1), make([]float32, count), make([]int64, count)
	recv := []func() (nexar.Status, error){
		func() (nexar.Status, error) { return nexar.Recv(ctx, c, data, 0, 5) },
		func() (nexar.Status, error) { return nexar.Recv(ctx, c, short, 0, 5) },
		func() (nexar.Status, error) { return nexar.Recv(ctx, c, other, 0, nexar.AnyTag) },
		func() (nexar.Status, error) { return nexar.Recv(ctx, c, longer, nexar.AnyRank, 5) },
		func() (nexar.Status, error) { return nexar.Recv(ctx, c, data, 0, 5) },
	}
	for i, want := range []error{nil, nexar.ErrTruncated, nexar.ErrTypeMismatch, nexar.ErrTypeMismatch, nil} {
		if _, err := recv[i](); !errors.Is(err, want) || err == nil && want != nil {
			return fmt.Errorf("recv %d: %v, want %v", i, err, want)
		}
	}
	if data[count-1] != 4 {
		return fmt.Errorf("the last message ends with %d, want 4", data[count-1])
	}
	for i := range count - 1 {
		if short[i] != 0 || other[i] != 0 || longer[i] != 0 {
			return errors.New("a message that was refused has been written into the buffer")
		}
	}
	return nil
}

// TestMessageCredit: a rank that receives nothing blocks the ranks that send to it, and
// only these: collectives go on.
func TestMessageCredit(t *testing.T) {
	const messages, count = 100, 10_000 // 4 MB in all
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.Sim(), worldtest.QUIC()) {
		t.Run(m.Name, func(t *testing.T) {
			comms := m.Cluster(t, 2, nexar.Config{})
			ctx, cancel := context.WithTimeout(t.Context(), 2*worldtest.Patience)
			defer cancel()
			sent := make(chan error, messages)
			go func() {
				defer close(sent)
				for k := range messages {
					data := make([]int32, count)
					data[0] = int32(k)
					sent <- nexar.Send(ctx, comms[0], data, 1, 9)
				}
			}()
			for range 20 {
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error { return c.Barrier(ctx) })
			}
			if n := len(sent); n > 40 {
				t.Errorf("%d messages of %d bytes were sent before a receive was posted", n, 4*count)
			}
			for k := range messages {
				data := make([]int32, count)
				if _, err := nexar.Recv(ctx, comms[1], data, 0, 9); err != nil {
					t.Fatal(err)
				}
				if data[0] != int32(k) {
					t.Fatalf("received message %d instead of %d", data[0], k)
				}
			}
			for err := range sent {
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
}
