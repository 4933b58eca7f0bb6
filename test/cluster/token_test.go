package cluster

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/testhost"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/quic"
)

// A node without the token of the cluster gets an error with the reason, which the seed logs as well. Nodes
// with the token can join afterwards.
func TestToken(t *testing.T) {
	t.Parallel()
	right, wrong := nexar.NewToken(), nexar.NewToken()
	for _, test := range []struct {
		name       string
		seed, node string
		want       string // in the node's error and in the seed's log
	}{
		{"wrong", right, wrong, "wrong cluster token (NEXAR_CLUSTER_TOKEN)"},
		{"missing at the node", right, "", "the node has no cluster token (NEXAR_CLUSTER_TOKEN)"},
		{"missing at the seed", "", right, "the node has a cluster token (NEXAR_CLUSTER_TOKEN), this cluster has none"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			log, lines := logTo(t, "seed and nodes")
			s := startLocalSeed(t, 2, nexar.SeedConfig{Token: test.seed, AllowWeakToken: true, Log: log})
			r := newEavesdropper(t, s.Addr())
			join := func(token string) nexar.Config {
				listen := testhost.FreePort(t)
				return nexar.Config{
					Seeds: []string{r.addr()}, Token: token, Log: log,
					Listen: listen, Advertise: listen, FormTimeout: 20 * time.Second,
				}
			}
			_, err := nexar.Join(t.Context(), join(test.node))
			mustContain(t, err, test.want, r.addr())
			waitFor(t, func() bool { return strings.Count(lines.String(), test.want) >= 1 })

			nodes, errs := joinAll(t, []nexar.Config{join(test.seed), join(test.seed)})
			mustBeNil(t, errs)
			mustBeNil(t, onEachNode(nodes, func(c *nexar.Comm) error { return checkWorld(t.Context(), c, 1) }))
			closeAll(t, nodes)

			said := fmt.Sprint(lines, err)
			for _, token := range []string{right, wrong} {
				mustNotContainToken(t, "the logs and errors", []byte(said), token)
				mustNotContainToken(t, "the network traffic", r.seen(), token)
			}
		})
	}
}

// mustNotContainToken fails the test if a text contains a token, in any of several encodings, or if the
// text is empty.
func mustNotContainToken(t *testing.T, where string, text []byte, token string) {
	t.Helper()
	if len(text) == 0 {
		t.Errorf("%s: the text is empty", where)
	}
	for encoding, form := range map[string]string{
		"as it is":        token,
		"without hyphens": strings.ReplaceAll(token, "-", ""),
		"base 64":         base64.StdEncoding.EncodeToString([]byte(token)),
		"base 16":         hex.EncodeToString([]byte(token)),
		"its beginning":   token[:20],
	} {
		if bytes.Contains(bytes.ToLower(text), bytes.ToLower([]byte(form))) {
			t.Errorf("%s: contains the token (%s)", where, encoding)
		}
	}
}

// A rogueSeed answers nodes in place of a seed and keeps all that they send. As the other end of the TLS
// connection it can read everything.
type rogueSeed struct {
	end      *quic.Endpoint
	addr     string
	received chan []byte // all data of a node
}

func newRogueSeed(t *testing.T) *rogueSeed {
	t.Helper()
	authority, err := pki.NewAuthority()
	if err != nil {
		t.Fatal(err)
	}
	creds, err := authority.Joining()
	if err != nil {
		t.Fatal(err)
	}
	end, err := quic.Listen(quic.Config{Addr: "127.0.0.1:0", Heartbeat: -1})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := end.Transport(creds)
	if err != nil {
		t.Fatal(err)
	}
	f := &rogueSeed{end: end, addr: end.Addr(), received: make(chan []byte, 16)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := tr.Accept(t.Context())
			if err != nil {
				return
			}
			f.received <- f.echo(t, c)
		}
	}()
	t.Cleanup(func() {
		end.Close()
		<-done
	})
	return f
}

// echo reads all that a node sends, and sends it back.
func (f *rogueSeed) echo(t *testing.T, c transport.Conn) []byte {
	defer c.Close()
	in, err := c.AcceptPipe(t.Context())
	if err != nil {
		return nil
	}
	out, err := c.OpenPipe(t.Context())
	if err != nil {
		return nil
	}
	var all []byte
	for b := make([]byte, 4096); ; {
		n, err := in.Read(b)
		all = append(all, b[:n]...)
		if err != nil {
			return all
		}
		out.Write(b[:n])
	}
}

// nexar 0.1 sent the token to any server that answered, over TLS without a check of its certificate. Here
// the token cannot be derived from the data that a node sends, and the node stops if the seed does not
// prove the token as well.
func TestFaultTokenTravels(t *testing.T) {
	t.Parallel()
	token := nexar.NewToken()
	f := newRogueSeed(t)
	_, err := nexar.Join(t.Context(), nexar.Config{
		Seeds: []string{f.addr}, Token: token, Listen: "127.0.0.1:0", FormTimeout: 10 * time.Second,
	})
	mustContain(t, err, f.addr, "does not hold the cluster token")
	mustNotContainToken(t, "the data that the rogue seed received", <-f.received, token)
}

// A seed requires a token that cannot be guessed.
func TestWeakToken(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"", "zqj", "correct-horse-battery"} {
		s, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: ":0", World: 1, Token: token})
		if err == nil {
			s.Close()
			t.Errorf("a public seed with the token %q: no error", token)
			continue
		}
		if token != "" && strings.Contains(err.Error(), token) {
			t.Errorf("the token is in the error: %v", err)
		}
	}
	began := time.Now()
	_, err := nexar.Join(t.Context(), nexar.Config{Seeds: []string{"192.0.2.1:7946"}, Token: "zqj", FormTimeout: 10 * time.Minute})
	mustContain(t, err, "Token: the token", "nexar token")
	if took := time.Since(began); took > slowMax {
		t.Errorf("Join took %v to refuse the token, want at most %v", took, slowMax)
	}
}
