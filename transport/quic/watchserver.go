package quic

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/nexar-go/nexar/internal/admission"
	"github.com/nexar-go/nexar/transport"
)

// A watchServer answers peers that ask about connections, at the TCP port of an Endpoint.
type watchServer struct {
	log       *slog.Logger
	listener  net.Listener
	admission *admission.Gate
	refusals  *refusals
	files     transport.FileShortage
	ending    chan struct{} // closed by close
	tasks     sync.WaitGroup

	mu    sync.Mutex
	over  bool
	conns map[watchID]*Conn
	open  map[net.Conn]struct{} // connections without a hello so far

	shared *listener // for other connections, or nil
}

func serveWatch(listener net.Listener, admission *admission.Gate, refusals *refusals, log *slog.Logger) *watchServer {
	s := &watchServer{
		log:       log,
		listener:  listener,
		admission: admission,
		refusals:  refusals,
		ending:    make(chan struct{}),
		conns:     make(map[watchID]*Conn),
		open:      make(map[net.Conn]struct{}),
	}
	s.tasks.Go(s.acceptLoop)
	return s
}

func (s *watchServer) add(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns[c.keys.localID] = c
}

func (s *watchServer) remove(c *Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.conns[c.keys.localID] == c {
		delete(s.conns, c.keys.localID)
	}
}

// close is called when all connections have ended.
func (s *watchServer) close() {
	s.mu.Lock()
	s.over = true
	close(s.ending)
	for sock := range s.open {
		sock.Close()
	}
	shared := s.shared
	s.mu.Unlock()
	if shared != nil {
		shared.Close()
	}
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
			s.files.Note(err) // the likely reason
			if !failing {
				s.log.Warn("quic: cannot accept TCP connections with which peers watch this process", "err", err)
			}
			failing = true
			time.Sleep(100 * time.Millisecond)
			continue
		}
		failing = false
		// While the admission has no room for a source that is within its own limit,
		// connections wait in the kernel, so that none is lost when many peers dial at once.
		ticket, err := s.admission.Enter(s.ending, admission.SourceOfPeer(sock), func() { admission.Reset(sock) })
		if err != nil {
			s.refusals.note(err)
		}
		if err != nil || !s.enter(sock) {
			admission.Reset(sock)
			continue
		}
		s.tasks.Go(func() { s.serve(sock, ticket) })
	}
}

func (s *watchServer) enter(sock net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.over {
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

// serve handles an accepted connection.
func (s *watchServer) serve(sock net.Conn, ticket *admission.Ticket) {
	sock.SetDeadline(time.Now().Add(watchTimeout))
	var first [1]byte
	_, err := io.ReadFull(sock, first[:])
	if err == nil && first[0] != watchMagic[0] {
		s.leave(sock)
		s.handOver(sock, first[0], ticket)
		return
	}
	defer sock.Close()
	defer ticket.Leave()
	var c *Conn
	var stay bool
	if err == nil {
		c, stay = s.answer(io.MultiReader(bytes.NewReader(first[:]), sock), sock, ticket)
	}
	s.leave(sock)
	if stay {
		sock.SetDeadline(time.Time{})
		c.serveHold(sock)
	}
}

// answer reads the hello from r and answers it.
func (s *watchServer) answer(r io.Reader, sock net.Conn, ticket *admission.Ticket) (c *Conn, stay bool) {
	hello, err := readWatchHello(r)
	if err != nil {
		return nil, false
	}
	s.mu.Lock()
	c = s.conns[hello.id]
	s.mu.Unlock()

	var word watchProof // zeros: unknown
	if c != nil && hello.word.equal(c.keys.hello) {
		ticket.Prove()
		word = c.keys.known
		stay = hello.want == askStay
	}
	_, err = sock.Write(word[:])
	return c, stay && err == nil
}
