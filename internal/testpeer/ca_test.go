//race:none its tests start child processes, which the detector does not see

package testpeer

import (
	"crypto/tls"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// shake performs a TLS handshake and returns the state of the server and the error of each side.
func shake(t *testing.T, client, server *tls.Config) (state tls.ConnectionState, clientErr, serverErr error) {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", server)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	served := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			err = c.(*tls.Conn).Handshake()
			state = c.(*tls.Conn).ConnectionState()
			c.Close()
		}
		served <- err
	}()
	c, clientErr := tls.Dial("tcp", l.Addr().String(), client)
	serverErr = <-served
	if clientErr == nil {
		c.Close()
	}
	return state, clientErr, serverErr
}

func TestCreds(t *testing.T) {
	ca, other := NewCA(t), NewCA(t)
	server, client := ca.Node(t, "server"), ca.Node(t, "client")
	joiner := &tls.Config{RootCAs: ca.Pool, ServerName: "server", NextProtos: []string{JoinALPN}}
	trusting := &Creds{Pool: ca.Pool, Cert: other.Node(t, "client").Cert}
	again := EncodeCreds(t, ca, client).Creds()
	for name, test := range map[string]struct {
		conf               *tls.Config
		clientOK, serverOK bool
		peer               string
	}{
		"the node that was asked for":    {client.Client("server"), true, true, "client"},
		"any node":                       {client.Client(""), true, true, "client"},
		"decoded credentials":            {again.Client("server"), true, true, "client"},
		"another node":                   {client.Client("somebody"), false, false, ""},
		"the server of another cluster":  {other.Node(t, "client").Client("server"), false, false, ""},
		"the client of another cluster":  {trusting.Client("server"), true, false, ""},
		"a client without a certificate": {joiner, true, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			state, clientErr, serverErr := shake(t, test.conf, server.Server())
			if (clientErr == nil) != test.clientOK || (serverErr == nil) != test.serverOK {
				t.Fatalf("client: %v, server: %v, want success: %v and %v", clientErr, serverErr, test.clientOK, test.serverOK)
			}
			if serverErr != nil {
				return
			}
			if peer, err := server.Peer(state); peer != test.peer || err != nil {
				t.Errorf("Peer on the server = %q, %v, want %q", peer, err, test.peer)
			}
		})
	}
}
