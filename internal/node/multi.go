package node

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/tcp"
)

// A multiListener is a transport that accepts the conns of several transports. It cannot dial.
type multiListener struct {
	transports []transport.Transport
	addr       string
	conns      chan transport.Conn
	life       context.Context
	cancel     context.CancelFunc
	acceptors  sync.WaitGroup
}

// joiningMin is the smallest number of unproved connections that a seed admits at a time.
const joiningMin = 512

// joiningMax returns the number of unproved connections that a seed for a world of n nodes admits at a time. It is
// more than n, since all nodes of a job may start at once, and some connect again before the seed has noticed that their
// first connection has ended. Each takes a file, and the proved connections need some too: above joiningMin, the number is at
// most a quarter of files, the number of files that the process may have open. Zero files mean that it is not known.
func joiningMax(n int, files uint64) int {
	if files == 0 {
		files = math.MaxInt
	}
	n = min(n, math.MaxInt/2)
	return max(joiningMin, int(min(uint64(2*n), files/4)))
}

// acceptJoins starts to accept joining processes on all transports of a seed for a world of n nodes. If it fails, the
// caller must still close the result.
func (s *sockets) acceptJoins(listen string, n int, joining pki.Joining) (*multiListener, error) {
	m := &multiListener{addr: s.addr, conns: make(chan transport.Conn)}
	m.life, m.cancel = context.WithCancel(context.Background())
	if s.endpoint != nil {
		t, err := s.endpoint.Transport(joining)
		if err != nil {
			return m, err
		}
		m.add(t)
	}
	if s.listensTo(tcpName) {
		l, err := s.listenTCP()
		if err != nil {
			return m, err
		}
		t, err := tcp.Listen(tcp.Config{Listener: l, Anonymous: true, MaxPipes: joinPipesMax, MaxHandshakes: joiningMax(n, transport.MaxFiles()), Log: s.log}, joining)
		if err != nil {
			return m, errors.Join(err, l.Close())
		}
		m.add(t)
	}
	for _, f := range s.use.factories() {
		t, err := start(m.life, f, s.env(listen, "", "", joining))
		if err != nil {
			s.noteUnavailable(f.Name, err)
			continue
		}
		m.add(t)
		if m.addr == "" {
			m.addr = f.Name + "=" + t.Addr()
			s.addr = m.addr
		}
	}
	if len(m.transports) == 0 {
		return m, errNoTransport
	}
	return m, nil
}

func (m *multiListener) add(t transport.Transport) {
	m.transports = append(m.transports, t)
	m.acceptors.Go(func() { m.acceptFrom(t) })
}

func (m *multiListener) acceptFrom(t transport.Transport) {
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

func (m *multiListener) Name() string { return "several" }
func (m *multiListener) Addr() string { return m.addr }

func (m *multiListener) Dial(_ context.Context, addr, _ string) (transport.Conn, error) {
	return nil, fmt.Errorf("a seed does not dial nodes: %q", addr)
}

func (m *multiListener) Accept(ctx context.Context) (transport.Conn, error) {
	select {
	case c := <-m.conns:
		return c, nil
	case <-m.life.Done():
		return nil, transport.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (m *multiListener) Close() (err error) {
	m.cancel()
	for _, t := range m.transports {
		err = errors.Join(err, t.Close())
	}
	m.acceptors.Wait()
	return err
}
