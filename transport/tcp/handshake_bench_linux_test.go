package tcp

import (
	"crypto/tls"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/internal/pki"
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

// identities returns the credentials of two nodes of a cluster as nexar makes them.
func identities(b *testing.B) (nodes [2]*pki.Identity) {
	b.Helper()
	authority, err := pki.NewAuthority()
	if err != nil {
		b.Fatal(err)
	}
	for i := range nodes {
		key, err := pki.NewKey()
		if err != nil {
			b.Fatal(err)
		}
		request, err := key.Request()
		if err != nil {
			b.Fatal(err)
		}
		cert, _, err := authority.Sign(request, 0)
		if err != nil {
			b.Fatal(err)
		}
		if nodes[i], err = pki.NewIdentity(key, cert, authority.Certificate()); err != nil {
			b.Fatal(err)
		}
	}
	return nodes
}

// BenchmarkHandshake compares handshakes for the socket of a pipe, each on a new TCP
// connection, for both sides together: with the certificates of both sides, with that of
// the server only, and by the ticket of a first session; with the key exchange of nodes and
// with the default of crypto/tls, a hybrid with ML-KEM.
func BenchmarkHandshake(b *testing.B) {
	nodes := identities(b)
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
					server.SessionTicketsDisabled, client.SessionTicketsDisabled = false, false
					client.ClientSessionCache = tls.NewLRUClientSessionCache(1)
					client.ServerName = "server"
				}
				benchHandshake(b, server, client)
			})
		}
	}
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
				nodes := identities(b)
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
					dialed, accepted := connect(b, &testNode{client, ""}, &testNode{server, nodes[0].ID().String()})
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
