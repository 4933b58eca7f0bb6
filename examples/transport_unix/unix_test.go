package main

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/transporttest"
)

// TestMain runs main in the processes that TestCluster starts.
func TestMain(m *testing.M) {
	if os.Getenv("UNIX_EXAMPLE") != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestCluster: four processes form a cluster over unix sockets alone.
func TestCluster(t *testing.T) {
	dir := t.TempDir()
	token := nexar.NewToken()
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{
		World: 4, Token: token, Transports: []string{"unix"}, Factories: []transport.Factory{Factory(dir)},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	if want := "unix=" + dir + "/seed"; seed.Addr() != want {
		t.Errorf("the seed has address %q, want %q", seed.Addr(), want)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var output bytes.Buffer
	var nodes []*exec.Cmd
	pipe, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		c := exec.CommandContext(ctx, self, "node", dir)
		c.Env = append(os.Environ(), "UNIX_EXAMPLE=1", "NEXAR_SEEDS="+seed.Addr(), "NEXAR_CLUSTER_TOKEN="+token)
		c.Stdout, c.Stderr = w, w
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, c)
	}
	w.Close()
	output.ReadFrom(pipe)
	for _, c := range nodes {
		if err := c.Wait(); err != nil {
			t.Errorf("a node failed: %v", err)
		}
	}
	for rank := range 4 {
		if want := fmt.Sprintf("rank %d of 4: sum 10 over unix", rank); !strings.Contains(output.String(), want) {
			t.Errorf("no node printed %q:\n%s", want, output.String())
		}
	}
}

func TestConformance(t *testing.T) { transporttest.Run(t, newCluster) }

// newCluster returns transports over unix sockets.
func newCluster(tb testing.TB, n int) (made transporttest.Cluster) {
	ca := newCA(tb)
	dir := tb.TempDir()
	for i := range n {
		id := fmt.Sprintf("n%d", i)
		tr, err := Factory(dir).Listen(tb.Context(), ca.env(tb, id))
		if err != nil {
			tb.Fatal(err)
		}
		made.Transports = append(made.Transports, tr)
		made.Identities = append(made.Identities, id)
	}
	made.Kill = func(i int) {
		made.Transports[i].(*streams).stop(func(c *conn) { c.end(transport.ErrClosed) })
	}
	return made
}

// A ca signs certificates. Their common name is the identity of a node.
type ca struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newCA(tb testing.TB) *ca {
	c := &ca{key: newKey(tb)}
	c.cert = c.sign(tb, "ca", nil, &c.key.PublicKey)
	return c
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func (c *ca) sign(tb testing.TB, name string, parent *x509.Certificate, key *ecdsa.PublicKey) *x509.Certificate {
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: parent == nil, BasicConstraintsValid: true,
	}
	if parent == nil {
		parent = template
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, c.key)
	if err != nil {
		tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		tb.Fatal(err)
	}
	return cert
}

// env returns the Env that nexar would pass to the factory.
func (c *ca) env(tb testing.TB, name string) transport.Env {
	key := newKey(tb)
	pool := x509.NewCertPool()
	pool.AddCert(c.cert)
	own := tls.Certificate{Certificate: [][]byte{c.sign(tb, name, c.cert, &key.PublicKey).Raw}, PrivateKey: key}
	check := func(want string) func(tls.ConnectionState) error {
		return func(s tls.ConnectionState) error {
			_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}})
			if got := s.PeerCertificates[0].Subject.CommonName; err == nil && want != "" && got != want {
				err = fmt.Errorf("%w: it is %q, want %q", transport.ErrIdentity, got, want)
			}
			return err
		}
	}
	return transport.Env{
		Node: name, Log: slog.New(slog.DiscardHandler),
		Server: &tls.Config{
			Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS13,
			ClientAuth: tls.RequireAnyClientCert, VerifyConnection: check(""),
		},
		Client: func(peer string) *tls.Config {
			return &tls.Config{
				Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS13,
				InsecureSkipVerify: true, VerifyConnection: check(peer),
			}
		},
		Peer: func(s tls.ConnectionState) (string, error) { return s.PeerCertificates[0].Subject.CommonName, nil },
	}
}
