package quic

import (
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"
)

// strangersMax is how many TCP connections may be open that have not said yet
// what they want. More are closed at once.
const strangersMax = 256

// A watchServer answers the peers that ask about connections, at the TCP port
// of an Endpoint.
type watchServer struct {
	log      *slog.Logger
	listener net.Listener
	tasks    sync.WaitGroup

	mu    sync.Mutex
	over  bool
	conns map[watchID]*Conn
	open  map[net.Conn]struct{} // those that have not said what they want
}

func serveWatch(listener net.Listener, log *slog.Logger) *watchServer {
	s := &watchServer{
		log:      log,
		listener: listener,
		conns:    make(map[watchID]*Conn),
		open:     make(map[net.Conn]struct{}),
	}
	s.tasks.Go(s.acceptLoop)
	return s
}

func (s *watchServer) add(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c.keys.mine] = c
}

func (s *watchServer) remove(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[c.keys.mine] == c {
		delete(s.conns, c.keys.mine)
	}
}

// close is called when all connections have ended.
func (s *watchServer) close() {
	s.mu.Lock()
	s.over = true
	for sock := range s.open {
		sock.Close()
	}
	s.mu.Unlock()
	s.listener.Close()
	s.tasks.Wait()
}

func (s *watchServer) acceptLoop() {
	failing := false
	for {
		sock, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// The process is short of file descriptors, most likely.
			if !failing {
				s.log.Warn("quic: cannot take TCP connections by which peers watch this process", "err", err)
			}
			failing = true
			time.Sleep(100 * time.Millisecond)
			continue
		}
		failing = false
		if !s.enter(sock) {
			sock.Close()
			continue
		}
		s.tasks.Go(func() { s.serve(sock) })
	}
}

func (s *watchServer) enter(sock net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over || len(s.open) == strangersMax {
		return false
	}
	s.open[sock] = struct{}{}
	return true
}

func (s *watchServer) leave(sock net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, sock)
}

func (s *watchServer) serve(sock net.Conn) {
	defer sock.Close()
	c, stay := s.answer(sock)
	s.leave(sock)
	if stay {
		sock.SetDeadline(time.Time{})
		c.serveHold(sock)
	}
}

// answer reads what a stranger wants and answers it.
func (s *watchServer) answer(sock net.Conn) (c *Conn, stay bool) {
	sock.SetDeadline(time.Now().Add(watchTimeout))
	hello, err := readWatchHello(sock)
	if err != nil {
		return nil, false
	}
	s.mu.Lock()
	c = s.conns[hello.id]
	s.mu.Unlock()

	var word watchProof // of zeros: unknown
	if c != nil && hello.word.equal(c.keys.hello) {
		word = c.keys.known
		stay = hello.want == askStay
	}
	_, err = sock.Write(word[:])
	return c, stay && err == nil
}
