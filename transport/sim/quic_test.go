package sim_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"io"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quic-go/quic-go"

	"github.com/nexar-go/nexar/transport/sim"
)

// quicTLS returns the configurations of a server with a self-signed certificate, and of a
// client that trusts it.
func quicTLS(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "b"},
		DNSNames:     []string{"b"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AddCert(cert)
	const protocol = "sim"
	return &tls.Config{
			Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: private}},
			NextProtos:   []string{protocol},
		}, &tls.Config{
			RootCAs: roots, ServerName: "b", NextProtos: []string{protocol},
		}
}

// TestQUIC sends 1 MiB by quic-go over a link with delay and loss. In fake time only the
// simulated network takes time.
func TestQUIC(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := sockets(t, sim.Config{Seed: 1, Delay: 20 * time.Millisecond, Loss: 0.02})
		serverTLS, clientTLS := quicTLS(t)
		want := make([]byte, 1<<20)
		rand.Read(want)

		listener, err := quic.Listen(b, serverTLS, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		sent := make(chan error, 1)
		go func() { sent <- serveQUIC(t, listener, want) }()

		start := time.Now()
		conn, err := quic.Dial(t.Context(), a, b.LocalAddr(), clientTLS, nil)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := conn.AcceptUniStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(stream)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("read %d bytes, %v, want the %d sent", len(got), err, len(want))
		}
		took := time.Since(start)
		t.Logf("1 MiB took %v of fake time", took)
		// The minimum is two round trips. Loss adds many.
		if took < 80*time.Millisecond || took > 30*time.Second {
			t.Errorf("1 MiB took %v, want between 80ms and 30s", took)
		}
		conn.CloseWithError(0, "")
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
}

// serveQUIC sends data to the first client and waits until it has closed.
func serveQUIC(t *testing.T, listener *quic.Listener, data []byte) error {
	conn, err := listener.Accept(t.Context())
	if err != nil {
		return err
	}
	stream, err := conn.OpenUniStream()
	if err != nil {
		return err
	}
	if _, err := stream.Write(data); err != nil {
		return err
	}
	if err := stream.Close(); err != nil {
		return err
	}
	<-conn.Context().Done()
	return nil
}

// TestQUICWithCorruption sends 1 MiB by quic-go over a link that corrupts, reorders and
// loses packets. QUIC authenticates each packet, so corruption is loss.
func TestQUICWithCorruption(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, a, b := sockets(t, sim.Config{
			Seed: 2, Delay: 5 * time.Millisecond, Jitter: time.Millisecond, Loss: 0.01, Reorder: 0.05, Corrupt: 0.02,
		})
		serverTLS, clientTLS := quicTLS(t)
		want := make([]byte, 1<<20)
		rand.Read(want)
		listener, err := quic.Listen(b, serverTLS, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		sent := make(chan error, 1)
		go func() { sent <- serveQUIC(t, listener, want) }()
		conn, err := quic.Dial(t.Context(), a, b.LocalAddr(), clientTLS, nil)
		if err != nil {
			t.Fatal(err)
		}
		stream, err := conn.AcceptUniStream(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(stream); err != nil || !bytes.Equal(got, want) {
			t.Errorf("read %d bytes, %v, want the %d sent", len(got), err, len(want))
		}
		conn.CloseWithError(0, "")
		if err := <-sent; err != nil {
			t.Error(err)
		}
	})
}
