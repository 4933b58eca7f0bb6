package link

import (
	"fmt"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/wire"
)

// A Credit bounds what the two nodes of a link keep for each other: payloads without a grant, by class, and frames without charge.
type Credit struct {
	link     *Link
	left     [wire.Classes]atomic.Int64 // for sending
	unread   [wire.Classes]atomic.Int64 // received, and the credit not returned
	owed     [wire.Classes]atomic.Int64 // consumed, and the credit not returned
	kept     atomic.Int64               // frames without charge that the Handler keeps
	buffered atomic.Int64               // bytes of granted payload that the Handler keeps; see Buffer
}

// Credit returns the credit of the link.
func (l *Link) Credit() *Credit { return &l.exchange().credit }

func (x *Credit) init(l *Link) {
	x.link = l
	for c := range x.left {
		x.left[c].Store(creditBytes)
	}
}

// Take takes the credit for n bytes of payload without a grant. It reports false if the
// credit is insufficient.
func (x *Credit) Take(c wire.Class, n int) bool {
	charge, left := int64(n+frameCharge), &x.left[c]
	for {
		have := left.Load()
		if have < charge {
			return false
		}
		if left.CompareAndSwap(have, have-charge) {
			return true
		}
	}
}

// unreturned returns the credit that was taken and that the peer has not returned.
func (x *Credit) unreturned() (bytes int) {
	for c := range x.left {
		bytes += int(creditBytes - x.left[c].Load())
	}
	return bytes
}

// Consumed returns the credit for n bytes of payload to the peer. Small amounts are
// collected before a frame is sent.
func (x *Credit) Consumed(c wire.Class, n int) {
	owed := x.owed[c].Add(int64(n + frameCharge))
	if owed < creditBytes/4 || !x.owed[c].CompareAndSwap(owed, 0) {
		return
	}
	x.unread[c].Add(-owed)
	f := wire.Credit{Class: c, Bytes: uint32(owed)}
	x.link.replies().post(f.Append)
}

// Buffer makes room for n bytes of payload that the peer has offered and that the Handler keeps. It
// reports false if they would exceed the credit of the class together with the unconsumed payload.
func (x *Credit) Buffer(c wire.Class, n int) bool {
	charge := int64(n + frameCharge)
	if x.buffered.Add(charge)+x.unread[c].Load()-x.owed[c].Load() <= creditBytes {
		return true
	}
	x.buffered.Add(-charge)
	return false
}

// Unbuffer undoes Buffer.
func (x *Credit) Unbuffer(n int) { x.buffered.Add(-int64(n + frameCharge)) }

// check checks whether the peer may send n bytes of payload without a grant.
func (x *Credit) check(c wire.Class, n int) error {
	if x.unread[c].Load()+int64(n+frameCharge) > creditBytes {
		return fmt.Errorf("more data of class %d than its credit allows", c)
	}
	return nil
}

// charge counts n bytes of payload that have arrived without a grant: a frame that its connection has cut arrives again. The count is
// exact: Consumed reduces it before it sends the credit.
func (x *Credit) charge(c wire.Class, n int) { x.unread[c].Add(int64(n + frameCharge)) }

// restore adds credit that the peer has returned. More than was taken is a protocol
// error.
func (x *Credit) restore(f wire.Credit) error {
	if x.left[f.Class].Add(int64(f.Bytes)) > creditBytes {
		return fmt.Errorf("more credit of class %d than was taken", f.Class)
	}
	return nil
}

// Keep counts a frame without charge that the Handler keeps. If the peer has sent too many,
// Keep ends the link and reports false.
func (x *Credit) Keep() bool {
	if x.kept.Add(1) <= keptMax {
		return true
	}
	x.kept.Add(-1)
	x.link.Fail(fmt.Errorf("link: protocol error: more than %d unanswered offers, grants and queries", keptMax))
	return false
}

// Dropped undoes Keep: the Handler no longer keeps the frame.
func (x *Credit) Dropped() { x.kept.Add(-1) }
