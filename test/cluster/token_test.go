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
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/quic"
)

// Who does not hold the token of the cluster stays out, is told why, and stands
// in the log of the seed. Whoever holds it comes in afterwards.
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
			s := seedHere(t, 2, nexar.SeedConfig{Token: test.seed, Log: log})
			r := newRelay(t, s.Addr())
			join := func(token string) nexar.Config {
				listen := freePort(t)
				return nexar.Config{
					Seeds: []string{r.addr()}, Token: token, Log: log,
					Listen: listen, Advertise: listen, FormTimeout: 20 * time.Second,
				}
			}
			_, err := nexar.Join(t.Context(), join(test.node))
			mustSay(t, err, test.want, r.addr())
			waitFor(t, func() bool { return strings.Count(lines.String(), test.want) >= 1 })

			nodes, errs := joinAll(t, []nexar.Config{join(test.seed), join(test.seed)})
			fine(t, errs)
			fine(t, every(nodes, func(c *nexar.Comm) error { return checkWorld(t.Context(), c, 1) }))
			closeAll(t, nodes)

			said := fmt.Sprint(lines, err)
			for _, token := range []string{right, wrong} {
				keepsSecret(t, "the logs and errors", []byte(said), token)
				keepsSecret(t, "what went over the network", r.seen(), token)
			}
		})
	}
}

// keepsSecret fails the test if there is a token in what others can read, as
// it is or written another way.
func keepsSecret(t *testing.T, where string, text []byte, token string) {
	t.Helper()
	if len(text) == 0 {
		t.Errorf("%s: nothing was kept", where)
	}
	for how, form := range map[string]string{
		"itself":       token,
		"its letters":  strings.ReplaceAll(token, "-", ""),
		"its base 64":  base64.StdEncoding.EncodeToString([]byte(token)),
		"its base 16":  hex.EncodeToString([]byte(token)),
		"a part of it": token[:20],
	} {
		if bytes.Contains(bytes.ToLower(text), bytes.ToLower([]byte(form))) {
			t.Errorf("%s: there is the token (%s)", where, how)
		}
	}
}

// A falseSeed answers as a seed would, to learn what nodes tell it. TLS keeps
// nothing from it, as it is the other end.
type falseSeed struct {
	end  *quic.Endpoint
	addr string
	said chan []byte // by each node that has come, before it gave up
}

func newFalseSeed(t *testing.T) *falseSeed {
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
	f := &falseSeed{end: end, addr: end.Addr(), said: make(chan []byte, 16)}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := tr.Accept(t.Context())
			if err != nil {
				return
			}
			f.said <- f.listen(t, c)
		}
	}()
	t.Cleanup(func() {
		end.Close()
		<-done
	})
	return f
}

// listen reads all that a node says, and answers with its own words.
func (f *falseSeed) listen(t *testing.T, c transport.Conn) []byte {
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

// The original sent the token to whoever answered, over TLS that checked no
// certificate. Here a node tells a seed nothing by which the token could be
// known, and goes no further with one that does not hold it as well.
func TestFaultTokenTravels(t *testing.T) {
	t.Parallel()
	token := nexar.NewToken()
	f := newFalseSeed(t)
	_, err := nexar.Join(t.Context(), nexar.Config{
		Seeds: []string{f.addr}, Token: token, Listen: "127.0.0.1:0", FormTimeout: 10 * time.Second,
	})
	mustSay(t, err, f.addr, "does not hold the cluster token")
	keepsSecret(t, "what the false seed was told", <-f.said, token)
}

// A seed that others can reach wants a token that cannot be guessed.
func TestWeakToken(t *testing.T) {
	t.Parallel()
	for _, token := range []string{"", "zqj", "correct-horse-battery"} {
		s, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: ":0", World: 1, Token: token})
		if err == nil {
			s.Close()
			t.Errorf("a seed for everyone, with the token %q: no error", token)
			continue
		}
		if token != "" && strings.Contains(err.Error(), token) {
			t.Errorf("the token is in the error: %v", err)
		}
	}
	began := time.Now()
	_, err := nexar.Join(t.Context(), nexar.Config{Seeds: []string{"192.0.2.1:7946"}, Token: "zqj", FormTimeout: 10 * time.Minute})
	mustSay(t, err, "192.0.2.1:7946", "128")
	if took := time.Since(began); took > slowMax {
		t.Errorf("the node took %v to find out", took)
	}
}
