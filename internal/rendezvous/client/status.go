package client

import (
	"context"
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A Report describes the nodes of a cluster. Nodes with ranks come first, in their order. The
// traces are those that the nodes have sent, unchecked.
type Report struct {
	wire.JoinWorldStatus
	Nodes []wire.JoinNodeStatus
}

// reportsMax is the maximum number of nodes of a Report.
const reportsMax = 1 << 16

// Status asks the first seed that answers for the state of all nodes. Its errors are those of
// [Seeds.Join], but it tries each seed only once, unless a seed is busy.
func (d Seeds) Status(ctx context.Context, token pki.Token, q wire.JoinStatusRequest) (r Report, err error) {
	d.once = true
	err = d.search(ctx, token, func(ctx context.Context, conn transport.Conn) (err error) {
		r, err = Status(ctx, conn, token, q)
		return err
	})
	return r, err
}

// Status asks the seed at the other end of conn, and closes conn.
func Status(ctx context.Context, conn transport.Conn, token pki.Token, q wire.JoinStatusRequest) (Report, error) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	r, err := readReport(ctx, handshake.New(conn), token, q)
	if !stop() && err != nil {
		err = context.Cause(ctx)
	}
	return r, failure("asking", conn.RemoteAddr(), err)
}

func readReport(ctx context.Context, c *handshake.Conn, token pki.Token, q wire.JoinStatusRequest) (r Report, err error) {
	step := handshake.Limits{}.WithDefaults(false).Step
	if _, err := c.Call(ctx, token, step); err != nil {
		return r, err
	}
	if err := c.Write(time.Now().Add(step), q); err != nil {
		return r, err
	}
	for {
		m, err := c.ReadReply(time.Now().Add(step))
		if err != nil {
			return r, err
		}
		switch m := m.(type) {
		case wire.JoinNodeStatus:
			if len(r.Nodes) == reportsMax {
				return r, fmt.Errorf("the answer to a status request contains more than %d nodes", reportsMax)
			}
			r.Nodes = append(r.Nodes, m)
		case wire.JoinWorldStatus:
			r.JoinWorldStatus = m
			return r, nil
		default:
			return r, fmt.Errorf("the answer to a status request contains a %T", m)
		}
	}
}

// answerPoll answers a status poll of the seed on a separate goroutine, so that it does
// not delay pings. Of several polls it answers the newest.
func (s *Session) answerPoll(q wire.JoinTraceRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polled = q
	if !s.answering {
		s.answering = true
		s.wg.Go(s.answerPolls)
	}
}

func (s *Session) answerPolls() {
	for {
		s.mu.Lock()
		q := s.polled
		s.mu.Unlock()
		var trace []byte
		if s.req.Status != nil {
			trace = s.req.Status(q.Detail)
		}
		if len(trace) > wire.TraceBytesMax {
			s.log.Error("trace of this node is too long", "bytes", len(trace), "max", wire.TraceBytesMax)
			trace = nil
		}
		s.Post(wire.JoinTrace{Number: q.Number, Trace: trace})
		s.mu.Lock()
		again := s.polled != q
		s.answering = again
		s.mu.Unlock()
		if !again {
			return
		}
	}
}
