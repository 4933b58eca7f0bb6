package quic

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/nexar-go/nexar/transport"
)

// childEnv makes the test binary a peer of its own process. Its value is what
// the peer has to know, as JSON.
const childEnv = "NEXAR_QUIC_TEST_CHILD"

type childOrders struct {
	CA, Cert, Key []byte // DER
	Dial          string // the address to dial, or "" to listen
}

// childMain echoes all that comes on pipes until its standard input ends.
func childMain() {
	var orders childOrders
	check(json.Unmarshal([]byte(os.Getenv(childEnv)), &orders))
	creds := &testCreds{pool: x509.NewCertPool()}
	ca, err := x509.ParseCertificate(orders.CA)
	check(err)
	creds.pool.AddCert(ca)
	key, err := x509.ParseECPrivateKey(orders.Key)
	check(err)
	leaf, err := x509.ParseCertificate(orders.Cert)
	check(err)
	creds.cert = tls.Certificate{Certificate: [][]byte{orders.Cert}, PrivateKey: key, Leaf: leaf}

	end, err := Listen(Config{Addr: "127.0.0.1:0", Heartbeat: -1})
	check(err)
	tr, err := end.Transport(creds)
	check(err)
	if orders.Dial != "" {
		c, err := tr.Dial(context.Background(), orders.Dial, "")
		check(err)
		go echo(c)
	}
	go func() {
		for {
			c, err := tr.Accept(context.Background())
			if err != nil {
				return // the end of the process
			}
			go echo(c)
		}
	}()
	fmt.Println(end.Addr())
	io.Copy(io.Discard, os.Stdin)
	check(end.Close())
}

func echo(c transport.Conn) {
	for {
		r, err := c.AcceptPipe(context.Background())
		if err != nil {
			return
		}
		s, err := c.OpenPipe(context.Background())
		if err != nil {
			return
		}
		go io.Copy(s, r)
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "child:", err)
		os.Exit(1)
	}
}
