package objects

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/nexar-go/nexar"
)

// A message begins with its kind and the length of the text that follows: the format of an object, or the text of an error.
// The encoded object is the rest.
const (
	objectKind = 'o'
	errorKind  = 'e'
	headBytes  = 3
)

// head returns the begin of a message.
func head(kind byte, text string) []byte {
	return append(binary.BigEndian.AppendUint16([]byte{kind}, uint16(len(text))), text...)
}

// parse divides a message. ok is false if it is none of this package.
func parse(message []byte) (kind byte, text string, object []byte, ok bool) {
	if len(message) < headBytes {
		return 0, "", nil, false
	}
	kind, n := message[0], int(binary.BigEndian.Uint16(message[1:]))
	rest := message[headBytes:]
	if kind != objectKind && kind != errorKind || n > textMax || n > len(rest) {
		return 0, "", nil, false
	}
	return kind, string(rest[:n]), rest[n:], true
}

// Send is the function [Send] with this format.
func (f Format[T]) Send(ctx context.Context, c *nexar.Comm, v T, to int, tag nexar.Tag) error {
	k := f.call(c, "send", 0)
	failure := errExited
	defer func() {
		if failure == errExited { // The panic goes on when the receiver has been told.
			_ = k.sendError(ctx, failure, to, tag)
		}
	}()
	encoded, err := f.encode(v)
	if err == nil && len(encoded[0]) > k.limit {
		err = fmt.Errorf("%w: it has %d bytes, and the limit is %d: raise Format.MaxBytes", nexar.ErrTooLarge, len(encoded[0]), k.limit)
	}
	if failure = err; err != nil {
		return k.sendError(ctx, err, to, tag)
	}
	return k.wrap(nexar.SendVec(ctx, c, [][]byte{head(objectKind, k.formatText()), encoded[0]}, to, tag))
}

// sendError sends the error of a Send to its receiver, and returns it.
func (k *call) sendError(ctx context.Context, failure error, to int, tag nexar.Tag) error {
	text := k.text(failure)
	err := nexar.Send(ctx, k.comm, head(errorKind, text), to, tag)
	failure = k.encodeError(k.comm.Rank(), text, failure)
	if err != nil {
		return fmt.Errorf("%w; and rank %d cannot be told: %w", failure, to, err)
	}
	return failure
}

// formatText is the text of the format in a message.
func (k *call) formatText() string {
	text := printable(k.format)
	return text[:min(len(text), textMax)]
}

// Recv is the function [Recv] with this format.
func (f Format[T]) Recv(ctx context.Context, c *nexar.Comm, from int, tag nexar.Tag) (v T, status nexar.Status, err error) {
	k := f.call(c, "recv", 0)
	m, err := c.MatchedProbe(ctx, from, tag)
	if err != nil {
		return v, nexar.Status{}, k.wrap(err)
	}
	if m.Source() == nexar.NoRank {
		status, err = nexar.RecvMatched[byte](ctx, m, nil)
		return v, status, k.wrap(err)
	}
	message, err := k.receive(ctx, m)
	if err != nil {
		return v, nexar.Status{}, err
	}
	object, err := k.object(m.Source(), message)
	if err != nil {
		return v, nexar.Status{}, err
	}
	if v, err = f.decode(k, m.Source(), object); err != nil {
		return v, nexar.Status{}, err
	}
	return v, nexar.Status{Source: m.Source(), Tag: m.Tag(), Count: len(object)}, nil
}

// receive receives a message, unless it is too large. After an error the message is lost.
func (k *call) receive(ctx context.Context, m *nexar.Message) ([]byte, error) {
	drop := func() { _, _ = nexar.RecvMatched[byte](context.WithoutCancel(ctx), m, nil) }
	if size := m.Bytes() - headBytes - textMax; size > k.limit {
		drop()
		return nil, k.decodeError(m.Source(), fmt.Errorf("%w: it has more than %d bytes, and the limit is %d: raise Format.MaxBytes", nexar.ErrTooLarge, size-1, k.limit))
	}
	message := make([]byte, m.Bytes())
	_, err := nexar.RecvMatched(ctx, m, message)
	if errors.Is(err, nexar.ErrTypeMismatch) {
		return nil, k.decodeError(m.Source(), err)
	}
	if err != nil && ctx.Err() != nil {
		drop() // if it has not begun
	}
	return message, k.wrap(err)
}

// object returns the encoded object in a message.
func (k *call) object(from int, message []byte) ([]byte, error) {
	kind, text, object, ok := parse(message)
	switch {
	case !ok:
		return nil, k.decodeError(from, fmt.Errorf("%w: the message of %d bytes is none of objects.Send", ErrMismatch, len(message)))
	case kind == errorKind:
		return nil, k.encodeError(from, text, nil)
	case text != k.formatText():
		return nil, k.decodeError(from, fmt.Errorf("%w: rank %d has sent %s, this rank receives %s", ErrMismatch, from, printable(text), k.formatText()))
	case len(object) > k.limit:
		return nil, k.decodeError(from, fmt.Errorf("%w: it has %d bytes, and the limit is %d: raise Format.MaxBytes", nexar.ErrTooLarge, len(object), k.limit))
	}
	return object, nil
}
