package testpeer

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/nexar-go/nexar/transport"
)

// EncodedCreds are Creds in DER, for the JSON orders of a child.
type EncodedCreds struct{ CA, Cert, Key []byte }

// EncodeCreds encodes credentials of a cluster.
func EncodeCreds(tb testing.TB, ca *CA, c *Creds) EncodedCreds {
	tb.Helper()
	key, err := x509.MarshalECPrivateKey(c.Cert.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		tb.Fatal(err)
	}
	return EncodedCreds{CA: ca.Cert.Raw, Cert: c.Cert.Certificate[0], Key: key}
}

// Creds decodes the credentials, in a child.
func (p EncodedCreds) Creds() *Creds {
	ca, err := x509.ParseCertificate(p.CA)
	Check(err)
	leaf, err := x509.ParseCertificate(p.Cert)
	Check(err)
	key, err := x509.ParseECPrivateKey(p.Key)
	Check(err)
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	return newCreds(pool, leaf, key)
}

// A Child is a peer in another process.
type Child struct {
	Addr  string // at which it listens
	Cmd   *exec.Cmd
	Stdin io.Closer // ends the child in good order
}

// StartChild starts the test binary again, with orders as JSON in an environment
// variable, and returns when the child listens. The child is killed at the end of the test.
func StartChild(tb testing.TB, variable string, orders any) *Child {
	tb.Helper()
	text, err := json.Marshal(orders)
	if err != nil {
		tb.Fatal(err)
	}
	ch := &Child{Cmd: exec.Command(os.Args[0])}
	ch.Cmd.Env = append(os.Environ(), variable+"="+string(text))
	ch.Cmd.Stderr = os.Stderr
	if ch.Stdin, err = ch.Cmd.StdinPipe(); err != nil {
		tb.Fatal(err)
	}
	stdout, err := ch.Cmd.StdoutPipe()
	if err != nil {
		tb.Fatal(err)
	}
	if err := ch.Cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		_ = ch.Cmd.Process.Kill()
		_ = ch.Cmd.Wait() // an error, as the process was killed
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		tb.Fatalf("reading the address of the child: %v", err)
	}
	ch.Addr = strings.TrimSpace(line)
	return ch
}

// ReadOrders reads the orders of StartChild, in the child.
func ReadOrders(variable string, orders any) {
	Check(json.Unmarshal([]byte(os.Getenv(variable)), orders))
}

// Check ends a child with exit code 1 if err is not nil.
func Check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
}

// Serve is the main loop of a child: it prints the address of the transport and echoes every
// pipe until standard input ends. Then it closes the transport by closeAll. If dial is not empty,
// it first dials that peer.
func Serve(tr transport.Transport, dial string, closeAll func() error) {
	var all sync.WaitGroup
	if dial != "" {
		c, err := tr.Dial(context.Background(), dial, "")
		Check(err)
		all.Go(func() { echo(c, &all) })
	}
	all.Go(func() {
		for {
			c, err := tr.Accept(context.Background())
			if err != nil {
				return
			}
			all.Go(func() { echo(c, &all) })
		}
	})
	fmt.Println(tr.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	Check(closeAll())
	all.Wait()
}

// echo answers each pipe with a pipe of the same content.
func echo(c transport.Conn, all *sync.WaitGroup) {
	for {
		r, err := c.AcceptPipe(context.Background())
		if err != nil {
			return
		}
		s, err := c.OpenPipe(context.Background())
		if err != nil {
			return
		}
		all.Go(func() { _, _ = io.Copy(s, r) })
	}
}
