package nexar

import (
	"context"
	"fmt"

	"github.com/nexar-go/nexar/internal/match"
)

// A Tag tells messages apart. Messages have tags of 0 and more.
type Tag int64

const (
	// AnyRank makes Recv take a message from every rank.
	AnyRank = match.Any
	// AnyTag makes Recv take a message with every tag.
	AnyTag Tag = match.Any
)

// A Status says what Recv has received.
type Status struct {
	Source int // the rank that sent it
	Tag    Tag
	Count  int // elements
}

// Send sends data to rank to, which may be this one. It returns when data may
// be used again: at once for a message of at most 64 KiB, as long as the
// receiver has left less than 1 MiB of this rank's messages unreceived (each
// counts for 64 bytes more than it holds), otherwise when the receiver has
// taken it. Messages
// from one rank to another with the same tag arrive in the order in which they
// were sent.
//
// If ctx ends while a message waits for its receiver, the communicator is
// revoked.
func Send[T Number](ctx context.Context, c *Comm, data []T, to int, tag Tag) error {
	if err := c.checkMessage(ctx, "to", to, tag); err != nil {
		return opError("send", err)
	}
	err := c.comm.Send(ctx, bytesOf(data), uint8(typeOf[T]()), to, int64(tag))
	return c.explain(ctx, "send", err)
}

// Recv receives a message from rank from with tag into data, which may be
// longer than the message. from may be AnyRank and tag AnyTag. A message that
// is longer than data, or of another type, is lost: ErrTruncated or
// ErrTypeMismatch.
//
// If ctx ends before a message has come, nothing has happened, and the
// communicator goes on. If it ends while a long message is coming in, the
// communicator is revoked. data must not be used until Recv returns. When all
// other ranks have left, so has what AnyRank could wait for.
func Recv[T Number](ctx context.Context, c *Comm, data []T, from int, tag Tag) (Status, error) {
	checkFrom, checkTag := max(from, 0), max(tag, 0)
	if from != AnyRank {
		checkFrom = from
	}
	if tag != AnyTag {
		checkTag = tag
	}
	if err := c.checkMessage(ctx, "from", checkFrom, checkTag); err != nil {
		return Status{}, opError("recv", err)
	}
	typ := typeOf[T]()
	got, err := c.comm.Recv(ctx, bytesOf(data), uint8(typ), from, int64(tag))
	if err != nil {
		return Status{}, c.explain(ctx, "recv", err)
	}
	return Status{Source: got.Source, Tag: Tag(got.Tag), Count: got.Bytes / typ.Size()}, nil
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
