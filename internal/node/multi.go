package node

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/tcp"
)

// A multi accepts the conns of several transports. It dials nobody.
type multi struct {
	transports []transport.Transport
	addr       string
	conns      chan transport.Conn
	life       context.Context
	cancel     context.CancelFunc
	acceptors  sync.WaitGroup
}

// accept starts to accept processes that join, on all transports of a seed.
func (s *sockets) accept(listen string, joining pki.Joining) (m *multi, err error) {
	m = &multi{addr: s.addr, conns: make(chan transport.Conn)}
	m.life, m.cancel = context.WithCancel(context.Background())
	add := func(t transport.Transport, e error) {
		if e != nil {
			err = errors.Join(err, e)
			return
		}
		m.transports = append(m.transports, t)
		m.acceptors.Go(func() { m.acceptFrom(t) })
	}
	if s.endpoint != nil {
		add(s.endpoint.Transport(joining))
	}
	if s.listensTo(tcpName) {
		l, e := s.listenTCP()
		if e == nil {
			var t *tcp.Transport
			if t, e = tcp.Listen(tcp.Config{Listener: l, Anonymous: true, MaxPipes: joinPipesMax, Log: s.log}, joining); e == nil {
				add(t, nil)
			}
		}
		if e != nil {
			err = errors.Join(err, e)
		}
	}
	for _, f := range s.use.factories() {
		t, e := s.start(m.life, f, s.env(listen, "", "", joining))
		if e != nil {
			s.lack(f.Name, e)
			continue
		}
		add(t, nil)
		if m.addr == "" {
			m.addr = f.Name + "=" + t.Addr()
			s.addr = m.addr
		}
	}
	if err == nil && len(m.transports) == 0 {
		err = errors.New("no transport can be used (NEXAR_TRANSPORTS)")
	}
	return m, err
}

func (m *multi) acceptFrom(t transport.Transport) {
	for {
		c, err := t.Accept(m.life)
		if err != nil {
			return
		}
		select {
		case m.conns <- c:
		case <-m.life.Done():
			c.Close()
			return
		}
	}
}

func (m *multi) Name() string { return "several" }
func (m *multi) Addr() string { return m.addr }

func (m *multi) Dial(_ context.Context, addr, _ string) (transport.Conn, error) {
	return nil, fmt.Errorf("a seed dials nobody, and not %q", addr)
}

func (m *multi) Accept(ctx context.Context) (transport.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.life.Done():
		return nil, transport.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (m *multi) Close() (err error) {
	m.cancel()
	for _, t := range m.transports {
		err = errors.Join(err, t.Close())
	}
	m.acceptors.Wait()
	return err
}
