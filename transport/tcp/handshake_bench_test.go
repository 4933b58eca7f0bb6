package tcp

import (
	"crypto/tls"
	"net"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// lastSession is a cache of the latest session.
type lastSession struct {
	mu sync.Mutex
	s  *tls.ClientSessionState
}

func (l *lastSession) Get(string) (*tls.ClientSessionState, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.s, l.s != nil
}

func (l *lastSession) Put(_ string, s *tls.ClientSessionState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.s == nil {
		l.s = s
	}
}

func processorTime() int64 {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

// BenchmarkHandshake compares TLS handshakes on a new TCP connection: of both sides, with processor
// time ("cpu-µs").
func BenchmarkHandshake(b *testing.B) {
	ca := newTestCA(b)
	server, client := ca.node(b, "server"), ca.node(b, "client")
	hybrid := func(c *tls.Config) *tls.Config { c.CurvePreferences = nil; return c }
	full := func(c *tls.Config) *tls.Config { c.SessionTicketsDisabled = true; return c }
	var kept *tls.SessionState
	stateful := func(c *tls.Config) *tls.Config {
		c.GetConfigForClient = nil
		c.WrapSession = func(_ tls.ConnectionState, s *tls.SessionState) ([]byte, error) {
			if kept == nil {
				kept = s
			}
			return []byte{1}, nil
		}
		c.UnwrapSession = func([]byte, tls.ConnectionState) (*tls.SessionState, error) { return kept, nil }
		return c
	}
	cache := func(c *tls.Config) *tls.Config { c.ClientSessionCache = new(lastSession); return c }
	for _, test := range []struct {
		name           string
		server, client *tls.Config
	}{
		{"certificates", full(server.Server()), full(client.Client("server"))},
		{"certificates-hybrid", hybrid(full(server.Server())), hybrid(full(client.Client("server")))},
		{"server-certificate", full(anonymous{server}.Server()), full(anonymous{client}.Client("server"))},
		{"ticket", server.Server(), cache(client.Client("server"))},
		{"ticket-hybrid", hybrid(server.Server()), hybrid(cache(client.Client("server")))},
		{"stateful", stateful(server.Server()), cache(client.Client("server"))},
	} {
		b.Run(test.name, func(b *testing.B) {
			kept = nil
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			pair := func() {
				done := make(chan error, 1)
				go func() {
					s, err := l.Accept()
					if err == nil {
						c := tls.Server(s, test.server)
						if err = c.Handshake(); err == nil {
							_, err = c.Write([]byte{1})
						}
						s.Read(make([]byte, 1))
						s.Close()
					}
					done <- err
				}()
				s, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					b.Fatal(err)
				}
				c := tls.Client(s, test.client)
				if _, err := c.Read(make([]byte, 1)); err != nil {
					b.Fatal(err)
				}
				s.Close()
				if err := <-done; err != nil {
					b.Fatal(err)
				}
			}
			pair()
			b.ReportAllocs()
			began := processorTime()
			for b.Loop() {
				pair()
			}
			b.ReportMetric(float64(processorTime()-began)/1e3/float64(b.N), "cpu-µs")
		})
	}
}
