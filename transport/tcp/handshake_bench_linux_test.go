package tcp

import (
	"crypto/sha256"
	"crypto/tls"
	"net"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// processorTime returns the processor time of this process in nanoseconds, of the user and
// the system.
func processorTime(b *testing.B) int64 {
	b.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// perProcessor runs a benchmark and reports its processor time ("cpu-µs").
func perProcessor(b *testing.B, f func()) {
	b.Helper()
	f()
	b.ReportAllocs()
	began := processorTime(b)
	for b.Loop() {
		f()
	}
	b.ReportMetric(float64(processorTime(b)-began)/1e3/float64(b.N), "cpu-µs")
}

// cachingCreds verify each certificate once, as the credentials of nodes do.
type cachingCreds struct {
	*testCreds
	verified sync.Map // of SHA-256 sums
}

func (c *cachingCreds) Server() *tls.Config {
	conf := c.base()
	conf.ClientAuth = tls.RequireAnyClientCert
	conf.VerifyConnection = c.verify
	return conf
}

func (c *cachingCreds) Client(string) *tls.Config {
	conf := c.base()
	conf.InsecureSkipVerify = true // verify does
	conf.VerifyConnection = c.verify
	return conf
}

func (c *cachingCreds) verify(state tls.ConnectionState) error {
	sum := sha256.Sum256(state.PeerCertificates[0].Raw)
	if _, ok := c.verified.Load(sum); ok {
		return nil
	}
	err := c.testCreds.Client("").VerifyConnection(state)
	if err == nil {
		c.verified.Store(sum, true)
	}
	return err
}

// newCachingCreds returns the credentials of two nodes, n0 and n1.
func newCachingCreds(b *testing.B) (nodes [2]*cachingCreds) {
	b.Helper()
	ca := newTestCA(b)
	for i, name := range []string{"n0", "n1"} {
		nodes[i] = &cachingCreds{testCreds: ca.node(b, name)}
	}
	return nodes
}

// BenchmarkHandshake compares handshakes for the socket of a pipe, each on a new TCP
// connection, for both sides together: with the certificates of both sides, with that of
// the server only, and by the ticket of a first session; with the key exchange of nodes and
// with the default of crypto/tls, a hybrid with ML-KEM.
func BenchmarkHandshake(b *testing.B) {
	nodes := newCachingCreds(b)
	for _, exchange := range []struct {
		name   string
		curves []tls.CurveID
	}{{"X25519", []tls.CurveID{tls.X25519}}, {"hybrid", nil}} {
		for _, name := range []string{"certificates", "server", "ticket"} {
			b.Run(exchange.name+"/"+name, func(b *testing.B) {
				server, client := nodes[0].Server(), nodes[1].Client("")
				server.CurvePreferences, client.CurvePreferences = exchange.curves, exchange.curves
				switch name {
				case "server":
					server.ClientAuth, server.VerifyConnection = tls.NoClientCert, nil
				case "ticket":
					var first []byte
					server.WrapSession = func(_ tls.ConnectionState, s *tls.SessionState) (ticket []byte, err error) {
						if first == nil {
							first, err = s.Bytes()
						}
						return []byte{0}, err
					}
					server.UnwrapSession = func([]byte, tls.ConnectionState) (*tls.SessionState, error) {
						return tls.ParseSessionState(first)
					}
					client.ClientSessionCache = new(firstSession)
				}
				benchHandshake(b, server, client)
			})
		}
	}
}

// A firstSession is a [tls.ClientSessionCache] with the first session of all.
type firstSession struct{ sessionStore }

func (s *firstSession) Get(string) (*tls.ClientSessionState, bool) {
	session := s.session.Load()
	return session, session != nil
}

func (s *firstSession) Put(_ string, session *tls.ClientSessionState) {
	s.session.CompareAndSwap(nil, session)
}

func benchHandshake(b *testing.B, server, client *tls.Config) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	socks := make(chan net.Conn)
	go func() {
		defer close(socks)
		for {
			sock, err := l.Accept()
			if err != nil {
				return
			}
			socks <- sock
		}
	}()
	perProcessor(b, func() {
		sock, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer sock.Close()
		other := <-socks
		defer other.Close()
		done := make(chan error, 1)
		go func() {
			_, err := tls.Server(other, server).Write([]byte{1})
			done <- err
		}()
		c := tls.Client(sock, client)
		if _, err := c.Read(make([]byte, 1)); err != nil { // the ticket comes first
			b.Fatal(err)
		}
		if err := <-done; err != nil {
			b.Fatal(err)
		}
	})
}

// BenchmarkOpenPipe measures the opening of a conn with pipes, for both sides together. The
// difference between two numbers of pipes is the cost of the pipes.
func BenchmarkOpenPipe(b *testing.B) {
	for name, cfg := range variants() {
		for _, pipes := range []int{0, 4} {
			b.Run(name+"/"+string(rune('0'+pipes)), func(b *testing.B) {
				nodes := newCachingCreds(b)
				cfg.Addr = "127.0.0.1:0"
				server, err := Listen(cfg, nodes[0])
				if err != nil {
					b.Fatal(err)
				}
				defer server.Close()
				client, err := Listen(cfg, nodes[1])
				if err != nil {
					b.Fatal(err)
				}
				defer client.Close()
				perProcessor(b, func() {
					dialed, accepted := connect(b, &testNode{client, ""}, &testNode{server, "n0"})
					for range pipes {
						pipeBetween(b, dialed, accepted)
					}
					dialed.Close()
					<-accepted.Done()
				})
			})
		}
	}
}
