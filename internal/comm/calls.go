package comm

import (
	"context"
	"errors"
	"fmt"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/p2p"
	"github.com/nexar-go/nexar/internal/recorder"
	"github.com/nexar-go/nexar/internal/rpc"
)

// trace registers the new communicator, and the one of its negotiation, with the
// recorder.
func (c *Comm) trace(control *engine.Comm) {
	control.SetTracing(&recorder.Comm{Epoch: c.Epoch(), Ranks: c.Ranks, Purpose: "setup"})
	c.Engine.SetTracing(&recorder.Comm{Epoch: c.Epoch(), Ranks: c.Ranks})
}

// serve starts the service of remote calls over carrier.
func (c *Comm) serve(carrier *engine.Comm) {
	c.carrier, c.Calls = carrier, rpc.New(port{carrier}, c.Rank, c.Size(), rpc.Config{
		Timeout: c.View.config.CallTimeout, InFlight: c.View.config.CallsInFlight, Log: c.View.log,
		Broken: func(rank int, err error) { carrier.Links()[rank].Fail(err) },
	})
	c.View.mu.Lock()
	c.View.services[c.Calls] = true
	c.View.mu.Unlock()
	end := func(err error) {
		AwaitCause(err)
		c.Calls.Close(c.Gone(err))
	}
	left := func(rank int, err error) { c.Calls.Lost(rank, c.Gone(err)) }
	carrier.Watch(engine.Watcher{Message: c.Calls.Arrived, Left: left, Ended: end})
	// The error of the communicator is more precise than that of the carrier.
	c.Engine.Watch(engine.Watcher{Ended: end})
}

// Gone returns the error of calls to a rank that has failed or left, or on a
// communicator that has ended.
func (c *Comm) Gone(err error) error {
	if _, ok := errors.AsType[*engine.PeerError](err); ok {
		return c.View.errors.Translate(c, err)
	}
	return c.View.errors.Ended(c, err)
}

// A port is an [rpc.Port] that sends calls as messages on a separate communicator.
type port struct{ comm *engine.Comm }

// Send implements rpc.Port.
func (p port) Send(to int, parts ...[]byte) error {
	s, err := p.comm.Messages().StartSend(&p2p.Regions{First: parts[0], More: parts[1:]}, 0, to, 0)
	if s != nil {
		err = s.Wait(context.Background())
	}
	if refused, ok := errors.AsType[*p2p.MisfitError](err); ok {
		return fmt.Errorf("%w: %w", rpc.ErrRefused, refused)
	}
	return err
}

// Poll implements rpc.Port.
func (p port) Poll() (m rpc.Message, ok bool) {
	got, ok, _ := p.comm.Messages().Peek(p2p.Any, p2p.Any)
	return rpc.Message{Source: got.Source, Bytes: got.Bytes}, ok
}

// Take implements rpc.Port.
func (p port) Take(m rpc.Message, buf []byte, done func(error)) {
	r, err := p.comm.Messages().StartRecv(p2p.Bytes(buf), 0, m.Source, p2p.Any)
	if err != nil {
		done(err)
		return
	}
	r.Follow(context.Background(), nil, func(_ p2p.Received, err error) { done(err) })
}
