package nexar

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// A stream is the messages from one rank to another with one tag.
type stream struct {
	from, to int
	tag      Tag
}

// streamLengths are the lengths of the messages of a stream, in elements of 4
// bytes: empty, short, around the longest that is sent without a grant, and
// around the longest piece.
var streamLengths = [...]int{3, 0, 16384, 1, 16385, 40_000, 16383, 7, 262_144, 100, 300_001, 2}

// element is the i-th element of the k-th message of a stream.
//
//go:norace
func (s stream) element(k, i int) int32 {
	return int32(mix(uint64(s.from)<<40|uint64(s.to)<<32|uint64(s.tag)<<24|uint64(k)<<16) + uint64(i)*2654435761)
}

//go:norace
func (s stream) message(k int) []int32 {
	data := make([]int32, streamLengths[k%len(streamLengths)])
	for i := range data {
		data[i] = s.element(k, i)
	}
	return data
}

// check looks at the k-th message of a stream, in a buffer that was empty.
//
//go:norace
func (s stream) check(k int, got Status, buf []int32) error {
	want := Status{Source: s.from, Tag: s.tag, Count: streamLengths[k%len(streamLengths)]}
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

// TestMessages sends many messages of all lengths between all ranks, and from
// each to itself, with several tags and all at the same time.
func TestMessages(t *testing.T) {
	for _, m := range []medium{overMem, overSim, overQUIC} {
		for _, wild := range []struct {
			name        string
			rank, tag   bool // are any
			postedFirst bool
		}{
			{name: "exact", postedFirst: true},
			{name: "exact, late"},
			{name: "any tag", tag: true},
			{name: "any rank", rank: true},
			{name: "any", rank: true, tag: true},
		} {
			if raceDetector && m.name != overMem.name && !wild.postedFirst {
				continue
			}
			t.Run(m.name+"/"+wild.name, func(t *testing.T) {
				x := exchange{comms: m.cluster(t, 3, Config{}), anyRank: wild.rank, anyTag: wild.tag, perStream: 24}
				if m.name != "mem" || raceDetector {
					x.perStream = len(streamLengths)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
				defer cancel()
				x.fail = func(format string, args ...any) {
					t.Errorf(format, args...)
					cancel() // so that nobody waits for what does not come
				}
				var sending sync.WaitGroup
				if !wild.postedFirst {
					sending.Go(func() { x.send(ctx) })
					time.Sleep(5 * time.Millisecond) // so that some come early
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
	comms           []*Comm
	anyRank, anyTag bool
	perStream       int
}

const exchangeTags = 3

// streams are those to a rank, or from it.
func (x *exchange) streams(rank int, to bool) (list []stream) {
	for other := range x.comms {
		for tag := range Tag(exchangeTags) {
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
					if err := Send(ctx, c, s.message(k), s.to, s.tag); err != nil {
						x.fail("message %d of %+v: %v", k, s, err)
						return
					}
				}
			})
		}
	}
}

// receive has one goroutine for each of those streams that a Recv tells apart.
func (x *exchange) receive(ctx context.Context) {
	var receivers sync.WaitGroup
	defer receivers.Wait()
	for rank, c := range x.comms {
		groups := make(map[stream][]stream)
		for _, s := range x.streams(rank, true) {
			as := s
			if x.anyRank {
				as.from = AnyRank
			}
			if x.anyTag {
				as.tag = AnyTag
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

// receiveAs receives several streams, each of which must come in order.
func (x *exchange) receiveAs(ctx context.Context, c *Comm, as stream, list []stream) error {
	next := make(map[stream]int)
	for range x.perStream * len(list) {
		room := 300_001
		if len(list) == 1 {
			room = streamLengths[next[list[0]]%len(streamLengths)]
		}
		buf := make([]int32, room)
		got, err := Recv(ctx, c, buf, as.from, as.tag)
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

// A message that its receiver cannot take is lost, as both sides are told if
// the sender still waits; those before and after it are not.
func TestMessageRefused(t *testing.T) {
	for _, m := range []medium{overMem, overSim, overQUIC} {
		for _, count := range []int{10, 100_000} {
			t.Run(fmt.Sprintf("%s/%d", m.name, count), func(t *testing.T) {
				comms := m.cluster(t, 2, Config{})
				onAll(t, comms, func(rank int, c *Comm) error {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
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

func sendRefused(ctx context.Context, c *Comm, count int) error {
	granted := count*4 > 64<<10
	for i, want := range []error{nil, ErrTruncated, ErrTypeMismatch, ErrTypeMismatch, nil} {
		data := make([]int32, count)
		data[count-1] = int32(i)
		if !granted {
			want = nil
		}
		if err := Send(ctx, c, data, 1, 5); !errors.Is(err, want) || err == nil && want != nil {
			return fmt.Errorf("send %d: %v, want %v", i, err, want)
		}
	}
	return nil
}

func recvRefused(ctx context.Context, c *Comm, count int) error {
	data := make([]int32, count)
	short, other, longer := make([]int32, count-1), make([]float32, count), make([]int64, count)
	recv := []func() (Status, error){
		func() (Status, error) { return Recv(ctx, c, data, 0, 5) },
		func() (Status, error) { return Recv(ctx, c, short, 0, 5) },
		func() (Status, error) { return Recv(ctx, c, other, 0, AnyTag) },
		func() (Status, error) { return Recv(ctx, c, longer, AnyRank, 5) },
		func() (Status, error) { return Recv(ctx, c, data, 0, 5) },
	}
	for i, want := range []error{nil, ErrTruncated, ErrTypeMismatch, ErrTypeMismatch, nil} {
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

// A rank that receives nothing stops those that send to it, and only them:
// collectives go on.
func TestMessageCredit(t *testing.T) {
	const messages, count = 100, 10_000 // 4 MB in all
	for _, m := range []medium{overMem, overSim, overQUIC} {
		t.Run(m.name, func(t *testing.T) {
			comms := m.cluster(t, 2, Config{})
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			sent := make(chan error, messages)
			go func() {
				defer close(sent)
				for k := range messages {
					data := make([]int32, count)
					data[0] = int32(k)
					sent <- Send(ctx, comms[0], data, 1, 9)
				}
			}()
			for range 20 {
				onAll(t, comms, func(rank int, c *Comm) error { return c.Barrier(ctx) })
			}
			if n := len(sent); n > 40 {
				t.Errorf("%d messages of %d bytes were taken from the sender before anyone received them", n, 4*count)
			}
			for k := range messages {
				data := make([]int32, count)
				if _, err := Recv(ctx, comms[1], data, 0, 9); err != nil {
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
