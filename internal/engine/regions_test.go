package engine

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/wire"
)

// regionsIn cuts b into regions of these lengths, which add up to len(b).
func regionsIn(b []byte, lengths []int) *p2p.Regions {
	r := new(p2p.Regions)
	for i, n := range lengths {
		if i == 0 {
			r.First = b[:n:n]
		} else {
			r.More = append(r.More, b[:n:n])
		}
		b = b[n:]
	}
	return r
}

func sum(lengths []int) (n int) {
	for _, l := range lengths {
		n += l
	}
	return n
}

// TestMessagesInRegions: messages are sent from, and received into, any number of regions of any
// length, also with more room than needed.
func TestMessagesInRegions(t *testing.T) {
	const long = 3 << 20
	w := newWorld(t, 2, overMem, Config{})
	for i, test := range []struct{ from, into []int }{
		{nil, nil},
		{nil, []int{0, 0}},
		{[]int{0, 0, 0}, nil},
		{[]int{0, 5, 0, 3}, []int{8}},
		{[]int{8}, []int{0, 1, 6, 0, 5}},
		{[]int{wire.PayloadMax - 10, 0, 10}, []int{1, wire.PayloadMax}},
		{[]int{wire.PayloadMax - 10, 0, 11}, []int{1, wire.PayloadMax}},
		{[]int{1, wire.PayloadMax}, []int{wire.PayloadMax, 0, 2}},
		{[]int{0, 0, long}, []int{long}},
		{[]int{long}, []int{0, 1 << 20, 1, 0, 2 << 20, 77}},
		{[]int{1 << 20, 2<<20 - 1, 1}, []int{3, 3<<20 - 3}},
		{slices.Repeat([]int{70}, 1000), slices.Repeat([]int{35}, 2001)},
	} {
		t.Run(fmt.Sprintf("%d to %d regions", len(test.from), len(test.into)), func(t *testing.T) {
			data, room := payload(sum(test.from), i), bytes.Repeat([]byte{0xEE}, sum(test.into))
			errs := w.on(func(rank int, c *Comm) error {
				if rank == 1 {
					r, err := c.messages.StartRecv(regionsIn(room, test.into), byteType, 0, 3)
					if err != nil {
						return err
					}
					got, err := r.Wait(t.Context())
					if want := (p2p.Received{Source: 0, Tag: 3, Bytes: len(data)}); err == nil && got != want {
						err = fmt.Errorf("received %+v, want %+v", got, want)
					}
					return err
				}
				s, err := c.messages.StartSend(regionsIn(data, test.from), byteType, 1, 3)
				if s != nil {
					err = s.Wait(t.Context())
				}
				return err
			})
			noError(t, errs)
			if !bytes.Equal(room[:len(data)], data) || !bytes.Equal(room[len(data):], bytes.Repeat([]byte{0xEE}, len(room)-len(data))) {
				t.Error("a wrong payload, or bytes behind it are changed")
			}
		})
	}
}

// TestEmptyMessagesBeyondCredit: empty messages use credit as well, need grants without it, and
// arrive in order.
func TestEmptyMessagesBeyondCredit(t *testing.T) {
	const count = 20_000 // 1 MiB pays for 16384.
	w := newWorld(t, 2, overMem, Config{})
	var waits []*p2p.Send
	for i := range count {
		s, err := w.comms[0].messages.StartSend(new(p2p.Regions), byteType, 1, int64(i%7))
		if err != nil {
			t.Fatal(err)
		}
		if s != nil {
			waits = append(waits, s)
		}
	}
	if want := count - 1<<20/64; len(waits) < want {
		t.Errorf("%d of %d messages wait for a grant, want at least %d", len(waits), count, want)
	}
	noError(t, w.on(func(rank int, c *Comm) (err error) {
		for i := range count * rank {
			if got, err := recvOn(t.Context(), c, nil, byteType, 0, p2p.Any); err != nil || got.Tag != int64(i%7) {
				return fmt.Errorf("message %d: %+v, %v", i, got, err)
			}
		}
		for _, s := range waits[:len(waits)*(1-rank)] {
			err = errors.Join(err, s.Wait(t.Context()))
		}
		return err
	}))
}
