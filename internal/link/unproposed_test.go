package link

import (
	"context"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// newLink returns a link over one or two connections that neither side has proposed, so that the other side may be a test that writes
// lanes. The link ends with them.
func newLink(ctx context.Context, conn transport.Conn, h Handler, cfg Config) (*Link, error) {
	cfg.Detached = nil
	l := NewCommon(h, cfg, nil).NewPending(7)
	a := newAttachment(l, firstPath(conn, cfg), cfg)
	a.first.pipesMax++ // The control lane of the peer is not accepted yet.
	control, err := a.first.open(ctx, wire.Control)
	if err != nil {
		return nil, err
	}
	lanes, err := a.openAll(ctx, control)
	if err != nil {
		return nil, err
	}
	if err := l.exchange().session.Bind(a.claim); err != nil {
		return nil, err
	}
	pre := wire.Preamble{Lane: wire.Control}
	if cfg.Bulk != nil {
		pre.Flags = wire.PreambleApart
	}
	a.startLocked(lanes, append(pre.Append(nil), confirmation()...)) // No other goroutine knows the link yet.
	return l, nil
}
