package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// cutAt returns regions of data with arbitrary bounds: some are empty, and most are
// short.
func cutAt[T any](data []T, seed uint64) (regions [][]T) {
	if len(data) == 0 && seed%2 == 0 {
		return nil
	}
	for len(data) > 0 {
		h := worldtest.Mix(seed + uint64(len(regions)))
		n := min(len(data), []int{0, 1, int(h >> 32 % 100), int(h >> 32 % 400_000), len(data)}[h%5])
		regions, data = append(regions, data[:n:n]), data[n:]
	}
	return append(regions, nil)
}

// vecLengths are streamLengths and longer ones.
func vecLengths() []int { return append(streamLengths[:], 1_000_003, 5, 700_000) }

// A letter is the k-th message of a sender, with the forms of its buffers on both sides.
type letter struct {
	k, count           int
	sendsVec, takesVec bool
	sent               stream // sender and receiver, which determine its content
}

func letters(from, to int) (list []letter) {
	for i, count := range append(vecLengths(), vecLengths()...) {
		h := worldtest.Mix(uint64(i))
		list = append(list, letter{i, count, h&3 > 0, h&12 > 0, stream{from, to, 3}})
	}
	return list
}

//go:norace
func (l letter) content() []int32 {
	data := make([]int32, l.count)
	for i := range data {
		data[i] = l.sent.element(l.k, i)
	}
	return data
}

func (l letter) send(ctx context.Context, c *nexar.Comm) error {
	if l.sendsVec {
		return nexar.SendVec(ctx, c, cutAt(l.content(), uint64(l.k)), l.sent.to, l.sent.tag)
	}
	return nexar.Send(ctx, c, l.content(), l.sent.to, l.sent.tag)
}

// take receives the letter into memory that is a little longer.
func (l letter) take(ctx context.Context, c *nexar.Comm) error {
	const room = 9
	g := newGuarded[int32](l.count + room)
	rest := slices.Repeat([]int32{77}, room)
	copy(g.v[l.count:], rest)
	from, tag := l.sent.from, l.sent.tag
	if l.k%4 == 0 {
		from, tag = nexar.AnyRank, nexar.AnyTag
	}
	var got nexar.Status
	var err error
	if l.takesVec {
		got, err = nexar.RecvVec(ctx, c, cutAt(g.v, uint64(l.k+100)), from, tag)
	} else {
		got, err = nexar.Recv(ctx, c, g.v, from, tag)
	}
	switch want := (nexar.Status{Source: l.sent.from, Tag: l.sent.tag, Count: l.count}); {
	case err != nil:
		return err
	case got != want:
		return fmt.Errorf("letter %+v: %+v, want %+v", l, got, want)
	case !slices.Equal(g.v[:l.count], l.content()):
		return fmt.Errorf("letter %+v has another content", l)
	case !slices.Equal(g.v[l.count:], rest):
		return fmt.Errorf("letter %+v: the rest of the room was written", l)
	}
	return g.check("the room")
}

// TestVec sends messages from regions of all kinds, and contiguous ones among them, into
// regions of other kinds. All of them arrive in order.
func TestVec(t *testing.T) {
	for _, m := range worldtest.MessageMedia() {
		t.Run(m.Name, func(t *testing.T) {
			m.Require(t)
			comms := m.Cluster(t, 2, nexar.Config{})
			for _, to := range []int{0, 1} {
				ctx, cancel := context.WithTimeout(t.Context(), 3*worldtest.Patience)
				defer cancel()
				list := letters(0, to)
				sent := make(chan error, 1)
				go func() {
					for _, l := range list {
						if err := l.send(ctx, comms[0]); err != nil {
							sent <- fmt.Errorf("letter %+v: %w", l, err)
							cancel()
							return
						}
					}
					sent <- nil
				}()
				for _, l := range list {
					if err := l.take(ctx, comms[to]); err != nil {
						t.Error(err)
						cancel()
						break
					}
				}
				if err := <-sent; err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestVecOverlap: regions that are read may share memory, and regions that are written
// may not overlap.
func TestVecOverlap(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
	defer cancel()
	x := []int32{1, 2, 3, 4, 5, 6}
	for _, test := range []struct {
		regions [][]int32
		a, b    int // that share memory
	}{
		{[][]int32{x[:3], x[2:]}, 0, 1},
		{[][]int32{x[4:], x[:2], x[1:3]}, 1, 2},
		{[][]int32{x, nil, x[5:]}, 0, 2},
		{[][]int32{x[2:3], x}, 0, 1},
		{[][]int32{x, x}, 0, 1},
	} {
		_, err := nexar.RecvVec(ctx, comms[1], test.regions, 0, 5)
		want := fmt.Sprintf("nexar: recv_vec: vectors overlap: regions %d and %d share memory", test.a, test.b)
		if !errors.Is(err, nexar.ErrOverlap) || err.Error() != want {
			t.Errorf("RecvVec into %v: %v, want %q", test.regions, err, want)
		}
	}
	for _, regions := range [][][]int32{
		{x[:3], x[3:]},
		{x[3:], x[:3]},
		{x[2:2], x, x[3:3], x[6:]},
		{x[5:], x[1:5], nil, x[:1]},
	} {
		twice := [][]int32{{7}, {8}}
		sent := [][]int32{twice[0], twice[1], twice[0], twice[0], twice[1], twice[1]}
		if err := nexar.SendVec(ctx, comms[0], sent, 1, 5); err != nil {
			t.Fatal(err)
		}
		clear(x)
		got, err := nexar.RecvVec(ctx, comms[1], regions, 0, 5)
		if want := (nexar.Status{Source: 0, Tag: 5, Count: 6}); err != nil || got != want || !slices.Equal(slices.Concat(regions...), []int32{7, 8, 7, 7, 8, 8}) {
			t.Errorf("RecvVec: %+v, %v, %v", got, err, regions)
		}
	}
}

// TestVecRefused: a message that does not fit into all regions together, or has another
// element type, is lost, and nothing of it is written.
func TestVecRefused(t *testing.T) {
	for _, m := range worldtest.MessageMedia() {
		t.Run(m.Name, func(t *testing.T) {
			m.Require(t)
			comms := m.Cluster(t, 2, nexar.Config{})
			for _, count := range []int{10, 300_000} {
				want := []error{nil, nexar.ErrTruncated, nexar.ErrTypeMismatch, nil}
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
					defer cancel()
					for i, want := range want {
						if count == 10 && rank == 0 {
							want = nil // It does not wait for its receiver.
						}
						var err error
						if rank == 0 {
							err = nexar.SendVec(ctx, c, cutAt(slices.Repeat([]int32{5}, count), 3), 1, 2)
						} else {
							err = takeVec(ctx, c, count, i)
						}
						if !errors.Is(err, want) || err == nil && want != nil {
							return fmt.Errorf("message %d of %d elements: %w, want %v", i, count, err, want)
						}
					}
					return nil
				})
			}
		})
	}
}

// takeVec receives the i-th message of TestVecRefused.
func takeVec(ctx context.Context, c *nexar.Comm, count, i int) error {
	var err error
	var data []int32
	switch i {
	case 1:
		data = make([]int32, count-1)
		_, err = nexar.RecvVec(ctx, c, cutAt(data, 4), 0, 2)
	case 2:
		other := make([]float32, count)
		_, err = nexar.RecvVec(ctx, c, cutAt(other, 4), 0, nexar.AnyTag)
		if slices.ContainsFunc(other, func(x float32) bool { return x != 0 }) {
			return errors.New("something was received")
		}
	default:
		data = make([]int32, count)
		if _, err = nexar.RecvVec(ctx, c, cutAt(data, 4), 0, 2); slices.Contains(data, 0) {
			return fmt.Errorf("not all was received, but the error is %v", err)
		}
		return err
	}
	if slices.Contains(data, 5) {
		return errors.New("something was received")
	}
	return err
}

// TestVecCancelled: a message that is cancelled in transfer returns all regions to their
// owner, and ends its communicator. Others over the same connections go on.
func TestVecCancelled(t *testing.T) {
	for _, m := range worldtest.MessageMedia() {
		for _, victim := range []int{0, 1} {
			t.Run(fmt.Sprintf("%s/%s", m.Name, [...]string{"sender", "receiver"}[victim]), func(t *testing.T) {
				m.Require(t)
				t.Parallel()
				for _, after := range []time.Duration{0, 200 * time.Microsecond, time.Millisecond, 4 * time.Millisecond} {
					cancelVec(t, m, victim, after)
				}
			})
		}
	}
}

func cancelVec(t *testing.T, m worldtest.Medium, victim int, after time.Duration) {
	a, b := m.Twice(t, 2)
	const count = 2 << 20
	worldtest.OnAll(t, a, func(rank int, c *nexar.Comm) error {
		ctx, cancel := context.WithTimeout(t.Context(), worldtest.Patience)
		defer cancel()
		if rank == victim {
			short, stop := context.WithCancelCause(ctx)
			defer stop(nil)
			defer time.AfterFunc(after, func() { stop(worldtest.ErrCancelled) }).Stop()
			ctx = short
		}
		x := make([]float32, count)
		regions := cutAt(x, uint64(after))
		var err error
		if rank == 0 {
			worldtest.FillRamp(x, 0)
			err = nexar.SendVec(ctx, c, regions, 1, 0)
		} else if _, err = nexar.RecvVec(ctx, c, regions, 0, 0); err == nil {
			if wrong, _ := worldtest.CheckRamps(x, 1); wrong > 0 {
				return fmt.Errorf("%d elements of a message that was received are wrong", wrong)
			}
		}
		if err != nil && !errors.Is(err, nexar.ErrRevoked) && !(rank == victim && errors.Is(err, worldtest.ErrCancelled)) {
			return err
		}
		if err != nil && rank == victim && c.Err() == nil {
			worldtest.Revoke(c, worldtest.ErrCancelled) // No message had arrived yet; the other call waits.
		}
		worldtest.FillRamp(x, 1)
		time.Sleep(time.Millisecond)
		if wrong, first := worldtest.CheckRamps(x, 0); wrong != count || x[first] != worldtest.Ramp(1, first) {
			return errors.New("a region was written after the call had ended")
		}
		return nil
	})
	worldtest.OnAll(t, b, func(rank int, c *nexar.Comm) error {
		l := letters(0, 1)[4]
		if rank == 0 {
			return l.send(t.Context(), c)
		}
		return l.take(t.Context(), c)
	})
}
