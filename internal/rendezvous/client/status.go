package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A Report says where the nodes of a cluster are: first those that have ranks, in
// their order. Records are as the nodes have sent them, and nobody has looked into
// them.
type Report struct {
	wire.JoinStanding
	Nodes []wire.JoinReport
}

// reportsMax is how many nodes a Report has at the most.
const reportsMax = 1 << 16

// Status asks the first seed that answers where all nodes are. It needs the token. Errors
// are those of Join, but each seed is tried only once, unless it is busy.
func (d Seeds) Status(ctx context.Context, token pki.Token) (r Report, err error) {
	d.once = true
	err = d.search(ctx, token, func(ctx context.Context, conn transport.Conn) (err error) {
		r, err = Status(ctx, conn, token)
		return err
	})
	return r, err
}

// Status asks the seed at the other end of conn, and closes conn.
func Status(ctx context.Context, conn transport.Conn, token pki.Token) (Report, error) {
	s := newSession(conn, Request{})
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { conn.Close() })
	r, err := s.readReport(ctx, token)
	if !stop() && err != nil {
		err = context.Cause(ctx)
	}
	return r, s.failure("asking", err)
}

func (s *Session) readReport(ctx context.Context, token pki.Token) (r Report, err error) {
	if _, err := s.conn.Call(ctx, token, s.lim.Step); err != nil {
		return r, err
	}
	if err := s.conn.Write(time.Now().Add(s.lim.Step), wire.JoinStatus{}); err != nil {
		return r, err
	}
	for {
		m, err := s.conn.ReadReply(time.Now().Add(s.lim.Step))
		if err != nil {
			return r, err
		}
		switch m := m.(type) {
		case wire.JoinReport:
			if len(r.Nodes) == reportsMax {
				return r, errors.New("it does not come to an end")
			}
			r.Nodes = append(r.Nodes, m)
		case wire.JoinStanding:
			r.JoinStanding = m
			return r, nil
		default:
			return r, fmt.Errorf("asked where the nodes are, was sent a %T", m)
		}
	}
}

// answerPoll answers a status poll of the seed, in a goroutine of its
// own: signs of life must not wait for it. Of several questions that come meanwhile
// the newest counts.
func (s *Session) answerPoll(number uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.polled = number
	if !s.answering {
		s.answering = true
		s.wg.Go(s.answerPolls)
	}
}

func (s *Session) answerPolls() {
	for {
		s.mu.Lock()
		number := s.polled
		s.mu.Unlock()
		var record []byte
		if s.status != nil {
			record = s.status()
		}
		if len(record) > wire.RecordBytesMax {
			s.log.Error("record of this node is too long", "bytes", len(record))
			record = nil
		}
		s.Post(wire.JoinTell{Number: number, Record: record})
		s.mu.Lock()
		s.answering = s.polled != number
		again := s.answering
		s.mu.Unlock()
		if !again {
			return
		}
	}
}
