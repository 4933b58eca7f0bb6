package engine

import (
	"context"

	"github.com/nexar-go/nexar/internal/p2p"
)

// StartSend begins to send a message; see [p2p.Messages.StartSend].
func (c *Comm) StartSend(data *p2p.Regions, typ uint8, to int, tag int64) (*p2p.Send, error) {
	return c.messages.StartSend(data, typ, to, tag)
}

// StartRecv begins to receive a message; see [p2p.Messages.StartRecv].
func (c *Comm) StartRecv(buf *p2p.Regions, typ uint8, source int, tag int64) (*p2p.Receive, error) {
	return c.messages.StartRecv(buf, typ, source, tag)
}

// Probe waits for a message and leaves it; see [p2p.Messages.Probe].
func (c *Comm) Probe(ctx context.Context, source int, tag int64) (p2p.Received, error) {
	return c.messages.Probe(ctx, source, tag)
}

// Peek is Probe without waiting; see [p2p.Messages.Peek].
func (c *Comm) Peek(source int, tag int64) (got p2p.Received, ok bool, err error) {
	return c.messages.Peek(source, tag)
}
