package quic

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// strangersMax is how many TCP connections may be open that have not said yet
// what they want. Then a new one takes the place of the oldest that has kept
// silent for longer than a stranger may; else it is closed at once.
const (
	strangersMax = 256
	silenceMax   = 500 * time.Millisecond
)

// A watchServer answers the peers that ask about connections, at the TCP port
// of an Endpoint.
type watchServer struct {
	log      *slog.Logger
	listener net.Listener
	files    transport.Files
	tasks    sync.WaitGroup

	mu    sync.Mutex
	over  bool
	conns map[watchID]*Conn
	open  map[net.Conn]time.Time // those that have not said what they want, and since when

	shared *listener // for other purposes; nil if nobody has asked
}

func serveWatch(listener net.Listener, log *slog.Logger) *watchServer {
	s := &watchServer{
		log:      log,
		listener: listener,
		conns:    make(map[watchID]*Conn),
		open:     make(map[net.Conn]time.Time),
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
			s.files.Note(err) // That is why, most likely.
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
	if s.over || len(s.open) >= strangersMax && !s.makeRoom() {
		return false
	}
	s.open[sock] = time.Now()
	return true
}

// makeRoom closes the oldest stranger, unless it has only just come.
func (s *watchServer) makeRoom() bool {
	var oldest net.Conn
	for sock, since := range s.open {
		if oldest == nil || since.Before(s.open[oldest]) {
			oldest = sock
		}
	}
	if time.Since(s.open[oldest]) < silenceMax {
		return false
	}
	oldest.Close()
	delete(s.open, oldest)
	return true
}

func (s *watchServer) leave(sock net.Conn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.open, sock)
}

// serve finds out whether a stranger wants to watch.
func (s *watchServer) serve(sock net.Conn) {
	sock.SetDeadline(time.Now().Add(watchTimeout))
	var first [1]byte
	_, err := io.ReadFull(sock, first[:])
	if err == nil && first[0] != watchMagic[0] {
		s.leave(sock)
		s.handOver(sock, first[0])
		return
	}
	defer sock.Close()
	var c *Conn
	var stay bool
	if err == nil {
		c, stay = s.answer(io.MultiReader(bytes.NewReader(first[:]), sock), sock)
	}
	s.leave(sock)
	if stay {
		sock.SetDeadline(time.Time{})
		c.serveHold(sock)
	}
}

// answer reads from r what a stranger wants and answers it.
func (s *watchServer) answer(r io.Reader, sock net.Conn) (c *Conn, stay bool) {
	hello, err := readWatchHello(r)
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
