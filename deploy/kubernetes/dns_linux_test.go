package kubernetes

import (
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/nexar-go/nexar/internal/testhost"
)

// A nameserver answers for the pods. Unlike that of a cluster it forgets nothing and caches nothing.
type nameserver struct {
	addr netip.Addr

	mu    sync.Mutex
	names map[string]record // by name, without the dot at the end
	asked map[string]int    // the number of queries for a name, existing or not
}

// A record has the addresses of a name.
type record struct {
	addrs []netip.Addr
	delay time.Duration // of the answer
}

// serveNames starts a name server on a host.
func serveNames(t *testing.T, h *testhost.Host) *nameserver {
	t.Helper()
	s := &nameserver{addr: h.Addr(), names: make(map[string]record), asked: make(map[string]int)}
	var socket net.PacketConn
	if err := h.In(func() (err error) {
		socket, err = net.ListenPacket("udp", netip.AddrPortFrom(s.addr, 53).String())
		return err
	}); err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	t.Cleanup(func() {
		socket.Close()
		running.Wait()
	})
	running.Go(func() {
		for {
			query := make([]byte, 512)
			n, from, err := socket.ReadFrom(query)
			if err != nil {
				return
			}
			running.Go(func() {
				if answer, err := s.answer(query[:n]); err == nil {
					socket.WriteTo(answer, from)
				}
			})
		}
	})
	return s
}

// set sets or replaces the addresses of a name.
func (s *nameserver) set(name string, r record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names[name] = r
}

// queries returns how often a name was asked for.
func (s *nameserver) queries(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[name]
}

func (s *nameserver) answer(query []byte) ([]byte, error) {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		return nil, err
	}
	q := m.Questions[0]
	name := q.Name.String()
	name = name[:len(name)-1]
	s.mu.Lock()
	s.asked[name]++
	r, known := s.names[name]
	s.mu.Unlock()
	time.Sleep(r.delay)
	m.Header = dnsmessage.Header{ID: m.ID, Response: true, Authoritative: true, RecursionAvailable: true}
	m.Additionals = nil
	if !known {
		m.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range r.addrs {
		header := dnsmessage.ResourceHeader{Name: q.Name, Type: q.Type, Class: dnsmessage.ClassINET, TTL: 5}
		switch {
		case q.Type == dnsmessage.TypeA && a.Is4():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: a.As4()}})
		case q.Type == dnsmessage.TypeAAAA && a.Is6():
			m.Answers = append(m.Answers, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return m.Pack()
}
