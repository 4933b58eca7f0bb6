package conformance

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/test/worldtest"
)

// Element types for moves, without arithmetic.
type (
	grad float32

	// A sample has padding, arrays, a struct and fields of size 0, one of them at
	// the end.
	sample struct {
		label  int8
		weight float64
		pixels [3]uint16
		box    struct{ x, y int32 }
		_      struct{}
		seen   bool
		phase  complex64
		_      [0]*int
	}

	// No message has a length that is a multiple of the size of a colour.
	colour struct{ r, g, b uint8 }

	// A page is longer than the longest message without a grant.
	page [70_001]byte
)

// TestElements moves elements of all kinds of types by all collectives and messages, over
// all transports.
func TestElements(t *testing.T) {
	require.NoRace(t, "it repeats other tests with many element types")
	for _, test := range []struct {
		worldtest.Medium
		ranks  []int
		counts []int
	}{
		{worldtest.Mem(), []int{1, 2, 4, 5}, []int{0, 1, 19, 9001}},
		{worldtest.MemLinks(), []int{3}, []int{1, 9001}},
		{worldtest.Sim(), []int{3}, []int{1, 501}},
		{worldtest.QUIC(), []int{3}, []int{1, 9001}},
		{worldtest.SHM(), []int{3}, []int{1, 9001}},
		{worldtest.SHMLinks(), []int{2}, []int{1, 9001}},
		{worldtest.TLS(), []int{2}, []int{1, 9001}},
		{worldtest.TCP(), []int{3}, []int{9001}},
		{worldtest.Mixed(), []int{4}, []int{1, 9001}},
	} {
		for _, n := range test.ranks {
			t.Run(fmt.Sprintf("%s/ranks=%d", test.Name, n), func(t *testing.T) {
				test.Require(t)
				comms := test.Cluster(t, n, nexar.Config{})
				for i, count := range test.counts {
					if worldtest.Brief() && i < len(test.counts)-1 {
						continue
					}
					for name, move := range movers() {
						count := count
						switch {
						case name == "page":
							count = min(count, 3)
						case worldtest.Brief():
							count = min(count, 101)
						}
						if err := worldtest.ForEach(n, func(rank int) error { return move(t.Context(), comms[rank], count) }); err != nil {
							t.Fatalf("%d of %s: %v", count, name, err)
						}
					}
				}
			})
		}
	}
}

// movers has the tests of each type.
func movers() map[string]func(ctx context.Context, c *nexar.Comm, count int) error {
	return map[string]func(ctx context.Context, c *nexar.Comm, count int) error{
		"grad":     moverOf(func(h uint64) grad { return grad(int32(h)) }),
		"bool":     moverOf(func(h uint64) bool { return h&1 == 1 }),
		"int":      moverOf(func(h uint64) int { return int(h) }),
		"complex":  moverOf(func(h uint64) complex128 { return complex(float64(int32(h)), float64(int32(h>>32))) }),
		"duration": moverOf(func(h uint64) time.Duration { return time.Duration(h) }),
		"node":     moverOf(func(h uint64) [16]byte { return [16]byte{0: byte(h), 7: byte(h >> 8), 15: byte(h >> 16)} }),
		"colour":   moverOf(func(h uint64) colour { return colour{byte(h), byte(h >> 8), byte(h >> 16)} }),
		"page":     moverOf(func(h uint64) (p page) { p[0], p[40_000], p[70_000] = byte(h), byte(h>>8), byte(h>>16); return p }),
		"sample": moverOf(func(h uint64) (s sample) {
			s.label, s.weight, s.pixels[2], s.box.y = int8(h), float64(int32(h>>8)), uint16(h>>3), int32(h>>16)
			s.seen, s.phase = h&4 == 4, complex(1, float32(int16(h)))
			return s
		}),
	}
}

// moverOf tests all functions that move elements of T, with random bits.
func moverOf[T comparable](element func(h uint64) T) func(ctx context.Context, c *nexar.Comm, count int) error {
	return func(ctx context.Context, c *nexar.Comm, count int) error {
		m := mover[T]{c: c, element: element}
		return errors.Join(m.collectives(ctx, count), m.uneven(ctx, count), m.messages(ctx, count))
	}
}

type mover[T comparable] struct {
	c       *nexar.Comm
	element func(h uint64) T
}

// vector returns the vector of a rank from element at on.
func (m mover[T]) vector(rank, at, n int) []T {
	v := make([]T, n)
	for i := range v {
		v[i] = m.element(worldtest.Mix(uint64(rank)<<32 + uint64(at+i)))
	}
	return v
}

// same compares a vector with the expected one.
func (m mover[T]) same(name string, got []T, parts ...[]T) error {
	if want := slices.Concat(parts...); !slices.Equal(got, want) {
		return fmt.Errorf("%s: %d elements are not those of the %d that were sent", name, len(got), len(want))
	}
	return nil
}

func (m mover[T]) collectives(ctx context.Context, count int) error {
	c, n, rank := m.c, m.c.Size(), m.c.Rank()
	own, all := m.vector(rank, 0, count), m.vector(rank, 0, n*count)
	var blocks, columns [][]T
	for r := range n {
		blocks, columns = append(blocks, m.vector(r, 0, count)), append(columns, m.vector(r, rank*count, count))
	}
	cast, every, one, swapped := slices.Clone(own), make([]T, n*count), make([]T, count), make([]T, n*count)
	err := errors.Join(
		nexar.Broadcast(ctx, c, cast, n-1), m.same("broadcast", cast, blocks[n-1]),
		nexar.AllGather(ctx, c, every, own), m.same("all_gather", every, blocks...),
		nexar.Scatter(ctx, c, one, all, n/2), m.same("scatter", one, m.vector(n/2, rank*count, count)),
		nexar.AllToAll(ctx, c, swapped, all), m.same("all_to_all", swapped, columns...),
	)
	clear(every)
	err = errors.Join(err, nexar.Gather(ctx, c, every, own, 0))
	if rank == 0 {
		err = errors.Join(err, m.same("gather", every, blocks...))
	}
	// In place.
	copy(every[rank*count:], own)
	return errors.Join(err, nexar.AllGather(ctx, c, every, every[rank*count:][:count]), m.same("all_gather in place", every, blocks...))
}

// uneven gives rank r a block of about r times count elements, and the last rank none.
func (m mover[T]) uneven(ctx context.Context, count int) error {
	c, n, rank := m.c, m.c.Size(), m.c.Rank()
	counts, blocks := make([]int, n), make([][]T, n)
	for r := range n - 1 {
		counts[r] = r*count + r%3
		blocks[r] = m.vector(r, 0, counts[r])
	}
	own, every, one := m.vector(rank, 0, counts[rank]), make([]T, sum(counts)), make([]T, counts[rank])
	err := errors.Join(
		nexar.AllGatherV(ctx, c, every, own, counts), m.same("all_gather_v", every, blocks...),
		nexar.ScatterV(ctx, c, one, m.vector(rank, 0, sum(counts)), counts, 0), m.same("scatter_v", one, m.vector(0, sum(counts[:rank]), counts[rank])),
	)
	clear(every)
	err = errors.Join(err, nexar.GatherV(ctx, c, every, own, counts, n-1))
	if rank == n-1 {
		err = errors.Join(err, m.same("gather_v", every, blocks...))
	}
	// Every rank sends counts[r] to rank r.
	into, columns := slices.Repeat([]int{counts[rank]}, n), make([][]T, n)
	for r := range n {
		columns[r] = m.vector(r, sum(counts[:rank]), counts[rank])
	}
	swapped := make([]T, sum(into))
	return errors.Join(err,
		nexar.AllToAllV(ctx, c, swapped, m.vector(rank, 0, sum(counts)), into, counts), m.same("all_to_all_v", swapped, columns...))
}

// messages sends two messages to the next rank. One of them consists of regions, and is
// received in others.
func (m mover[T]) messages(ctx context.Context, count int) error {
	c, n, rank := m.c, m.c.Size(), m.c.Rank()
	to, from := (rank+1)%n, (rank+n-1)%n
	own, want := m.vector(rank, 0, count), m.vector(from, 0, count)
	got, parts := make([]T, count+1), make([]T, count)
	receiving := nexar.StartRecv(ctx, c, got, from, 1)
	sending := nexar.StartSend(ctx, c, own, to, 1)
	err := nexar.WaitAll(receiving, sending)
	if s := receiving.Status(); err == nil && s.Count != count {
		err = fmt.Errorf("received %d elements, want %d", s.Count, count)
	}
	err = errors.Join(err, m.same("recv", got[:count], want))
	sent := make(chan error, 1)
	go func() { sent <- nexar.SendVec(ctx, c, [][]T{own[:count/3], nil, own[count/3:]}, to, 2) }()
	s, vecErr := nexar.RecvVec(ctx, c, [][]T{parts[:count/2], parts[count/2:]}, from, 2)
	if vecErr == nil && s.Count != count {
		vecErr = fmt.Errorf("received %d elements in parts, want %d", s.Count, count)
	}
	return errors.Join(err, vecErr, <-sent, m.same("recv_vec", parts, want))
}

// TestInvalidElements: element types without a meaning in another process are an error of
// every function, at once and before anything is sent.
func TestInvalidElements(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	for _, errs := range []map[string]error{
		refusals[*int](ctx, comms[0]),
		refusals[string](ctx, comms[0]),
		refusals[[]float32](ctx, comms[0]),
		refusals[map[int]int](ctx, comms[0]),
		refusals[any](ctx, comms[0]),
		refusals[error](ctx, comms[0]),
		refusals[func()](ctx, comms[0]),
		refusals[chan int](ctx, comms[0]),
		refusals[uintptr](ctx, comms[0]),
		refusals[unsafe.Pointer](ctx, comms[0]),
		refusals[struct{}](ctx, comms[0]),
		refusals[[0]int](ctx, comms[0]),
		refusals[[4]struct{}](ctx, comms[0]),
		refusals[struct{ a, b struct{} }](ctx, comms[0]),
		refusals[[2]string](ctx, comms[0]),
		refusals[[2][1]*byte](ctx, comms[0]),
		refusals[struct {
			id   int
			name string
		}](ctx, comms[0]),
		refusals[struct{ in struct{ at *sample } }](ctx, comms[0]),
		refusals[struct{ handle uintptr }](ctx, comms[0]),
		refusals[time.Time](ctx, comms[0]), // contains a pointer to its time zone
	} {
		for name, err := range errs {
			if !errors.Is(err, nexar.ErrInvalidType) || !regexp.MustCompile(`contains pointers or uintptrs|has no bytes to send`).MatchString(err.Error()) {
				t.Errorf("%s: %v, want ErrInvalidType", name, err)
			}
		}
	}
	worldtest.CheckWorks(t, comms)
}

// refusals returns the errors of all functions for elements of T, by function.
func refusals[T any](ctx context.Context, c *nexar.Comm) map[string]error {
	one, two, ones := make([]T, 1), make([]T, 2), []int{1, 1}
	_, recv := nexar.Recv(ctx, c, one, 1, 0)
	_, recvVec := nexar.RecvVec(ctx, c, [][]T{one}, 1, 0)
	_, exchange := nexar.Exchange(ctx, c, one, make([]T, 1), 1, 1, 0)
	_, probe := nexar.Probe[T](ctx, c, 1, 0)
	errs := map[string]error{
		"broadcast":      nexar.Broadcast(ctx, c, one, 0),
		"gather":         nexar.Gather(ctx, c, two, make([]T, 1), 0),
		"all_gather":     nexar.AllGather(ctx, c, two, make([]T, 1)),
		"scatter":        nexar.Scatter(ctx, c, one, make([]T, 2), 0),
		"all_to_all":     nexar.AllToAll(ctx, c, two, make([]T, 2)),
		"gather_v":       nexar.GatherV(ctx, c, two, make([]T, 1), ones, 0),
		"all_gather_v":   nexar.AllGatherV(ctx, c, two, make([]T, 1), ones),
		"scatter_v":      nexar.ScatterV(ctx, c, one, make([]T, 2), ones, 0),
		"all_to_all_v":   nexar.AllToAllV(ctx, c, two, make([]T, 2), ones, ones),
		"send":           nexar.Send(ctx, c, one, 1, 0),
		"send_vec":       nexar.SendVec(ctx, c, [][]T{one}, 1, 0),
		"recv":           recv,
		"recv_vec":       recvVec,
		"exchange":       exchange,
		"probe":          probe,
		"no elements":    nexar.Broadcast(ctx, c, []T(nil), 0),
		"start send":     nexar.StartSend(ctx, c, one, 1, 0).Wait(),
		"start recv":     nexar.StartRecv(ctx, c, one, 1, 0).Wait(),
		"start gather":   nexar.StartGather(ctx, c, two, make([]T, 1), 0).Wait(),
		"start gather_v": nexar.StartGatherV(ctx, c, two, make([]T, 1), ones, 0).Wait(),
	}
	named := make(map[string]error, len(errs))
	for name, err := range errs {
		named[fmt.Sprintf("%s of %v", name, reflect.TypeFor[T]())] = err
	}
	return named
}

// TestMismatchOfElements: structs on one rank and numbers, or larger structs, on another
// are a mismatch.
func TestMismatchOfElements(t *testing.T) {
	broadcastSamples := func(n int) call {
		text := fmt.Sprintf("broadcast #2 (%d × bytes of structs, root 0)", n*int(unsafe.Sizeof(sample{})))
		return call{text, func(ctx context.Context, c *nexar.Comm) error { return nexar.Broadcast(ctx, c, make([]sample, n), 0) }}
	}
	type half uint16
	halves := call{"broadcast #2 (40 × bytes of structs, root 0)", func(ctx context.Context, c *nexar.Comm) error {
		return nexar.Broadcast(ctx, c, make([]half, 20), 0)
	}}
	for _, calls := range [][2]call{
		{broadcastSamples(3), broadcastOf(3, 0)},
		{broadcastSamples(1), broadcastOf(int(unsafe.Sizeof(sample{})), 0)},
		{broadcastSamples(3), broadcastSamples(4)},
		{halves, broadcastOf(10, 0)}, // of the same length in bytes
	} {
		for odd := range 2 {
			t.Run(fmt.Sprintf("%s, but rank %d %s", calls[0].text, odd, calls[1].text), func(t *testing.T) {
				t.Parallel()
				mismatch(t, worldtest.Mem(), 2, odd, calls[0], calls[1])
			})
		}
	}
}

// TestMessageOfOtherElements: a receiver with another element type loses the message, and
// nothing else.
func TestMessageOfOtherElements(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.QUIC()) {
		comms := m.Cluster(t, 2, nexar.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
		defer cancel()
		for _, count := range []int{1, 100_000} {
			sent := make(chan error, 1)
			go func() { sent <- nexar.Send(ctx, comms[0], make([]colour, count), 1, 0) }()
			_, err := nexar.Recv(ctx, comms[1], make([]float32, count), 0, 0)
			if !errors.Is(err, nexar.ErrTypeMismatch) || !strings.Contains(err.Error(), "bytes of structs from rank 0, for a buffer of float32") {
				t.Errorf("%s: %v, want ErrTypeMismatch", m.Name, err)
			}
			if err := <-sent; err != nil && !errors.Is(err, nexar.ErrTypeMismatch) {
				t.Errorf("%s: send: %v", m.Name, err)
			}
			worldtest.CheckWorks(t, comms)
		}
	}
}

// TestMessageOfPartsOfElements: if the length of a message is not a multiple of the receiver's
// element size, the error is a type mismatch, and no truncation.
func TestMessageOfPartsOfElements(t *testing.T) {
	type pair [2]uint32
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.QUIC()) {
		comms := m.Cluster(t, 2, nexar.Config{})
		ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
		defer cancel()
		for _, count := range []int{3, 100_003} { // of 3 bytes each, for some of 8
			room := make([]pair, count)
			for name, receive := range map[string]func() (nexar.Status, error){
				"recv":     func() (nexar.Status, error) { return nexar.Recv(ctx, comms[1], room, 0, 0) },
				"vec":      func() (nexar.Status, error) { return nexar.RecvVec(ctx, comms[1], [][]pair{room[:1], room[1:]}, 0, 0) },
				"exchange": func() (nexar.Status, error) { return nexar.Exchange(ctx, comms[1], room, nil, 0, 0, 0) },
				"handle": func() (nexar.Status, error) {
					h := nexar.StartRecv(ctx, comms[1], room, 0, 0)
					err := h.Wait()
					return h.Status(), err
				},
			} {
				sent := make(chan error, 1)
				go func() { sent <- nexar.Send(ctx, comms[0], make([]colour, count), 1, 0) }()
				bytes := fmt.Sprintf("%d bytes from rank 0, which is no whole number of elements of 8 bytes", 3*count)
				probed, err := nexar.Probe[pair](ctx, comms[1], nexar.AnyRank, nexar.AnyTag)
				if !errors.Is(err, nexar.ErrTypeMismatch) || !strings.Contains(err.Error(), bytes) || probed.Source != 0 || probed.Tag != 0 {
					t.Errorf("%s: probe: %+v, %v, want ErrTypeMismatch", m.Name, probed, err)
				}
				got, err := receive()
				if !errors.Is(err, nexar.ErrTypeMismatch) || !strings.Contains(err.Error(), bytes) || got.Count != 0 {
					t.Errorf("%s: %s: %+v, %v, want ErrTypeMismatch", m.Name, name, got, err)
				}
				if err := <-sent; err != nil && (!errors.Is(err, nexar.ErrTypeMismatch) || !strings.Contains(err.Error(), "elements are of another size")) {
					t.Errorf("%s: send: %v", m.Name, err)
				}
			}
			worldtest.CheckWorks(t, comms)
		}
	}
}
