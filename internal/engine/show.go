package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"time"
	"unsafe"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/wire"
)

// A shown message is one that its receiver reads in the memory of its sender's
// process. It is copied once then, and by none but the goroutine that receives
// it.
type shown struct {
	link  *link.Link
	id    uint64
	data  uint64 // where it lies, 0 if it is none
	valid uint64 // where its number lies, until its sender has taken it back
}

// shownBytes is how much is read between two looks at whether the call, or the
// communicator, has ended.
const shownBytes = 4 << 20

var errTakenBack = errors.New("its sender has taken the message back")

// show says in an offer where the message lies. It stays there until Send has
// returned: the memory of Go does not move.
func (s *Sending) show(o *wire.Offer) {
	s.shows = true
	s.valid.Store(s.id)
	o.Data = uint64(uintptr(unsafe.Pointer(&s.transfer.Data[0])))
	o.Valid = uint64(uintptr(unsafe.Pointer(&s.valid)))
}

// finish is the end of a receive: what is shown has to be read still.
func (c *Comm) finish(ctx context.Context, r *Receive) (Received, error) {
	if r.shown.data == 0 || r.err != nil {
		return r.got, r.err
	}
	err := c.read(ctx, r)
	if err == nil {
		return r.got, nil
	}
	err = c.reasonFor(ctx, err)
	c.cancel(nil, err)
	return Received{}, err
}

// read copies a message that is shown, and tells its sender. The mark of the
// sender is read last, together with the last bytes.
func (c *Comm) read(ctx context.Context, r *Receive) error {
	s, into := r.shown, r.buf.cut(r.got.Bytes)
	p := s.link.Puller()
	dst, more := into.First, into.More
	for at := s.data; ; {
		if len(dst) == 0 && len(more) > 0 {
			dst, more = more[0], more[1:]
			continue
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := c.Err(); err != nil {
			return err
		}
		n := min(len(dst), shownBytes)
		if n == len(dst) && len(more) == 0 {
			if err := p.PullMarked(dst, at, r.mark[:], s.valid); err != nil {
				return err
			}
			break
		}
		if err := p.Pull(dst[:n], at); err != nil {
			return err
		}
		dst, at = dst[n:], at+uint64(n)
	}
	if binary.NativeEndian.Uint64(r.mark[:]) != s.id {
		return errTakenBack
	}
	s.link.GrantOffer(wire.OfferGrant{Comm: c.id, ID: s.id})
	return nil
}

// reasonFor waits a while for the reason why a message could not be read: its
// sender has ended, or has failed, and the communicator with it. It does not
// wait once ctx has ended.
func (c *Comm) reasonFor(ctx context.Context, err error) error {
	ctx, cancel := context.WithTimeout(ctx, pullGrace)
	defer cancel()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		if err := c.Err(); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}
