package node

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/host"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/testlog"
	"github.com/nexar-go/nexar/transport"
)

// Nodes whose certificates have expired connect again while no seed answers, over TCP and QUIC, and warn
// of the expiry. Without a grace the error names it.
func TestExpiredCertificates(t *testing.T) {
	const life = 3 * time.Second
	for name, test := range map[string]struct {
		transport string
		grace     time.Duration
	}{
		"tcp":                 {"tcp", time.Hour},
		"quic":                {"quic", time.Hour},
		"tcp, no grace":       {"tcp", 0},
		"quic, grace is over": {"quic", time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log testlog.Buffer
			logger := slog.New(slog.NewTextHandler(&log, nil))
			token := pki.NewToken()
			seed, err := StartSeed(SeedConfig{Listen: "127.0.0.1:0", Transports: names("tcp", "quic"), Token: token, World: 2, CertificateLife: life, Log: logger})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var nodes [2]*Node
			var joining sync.WaitGroup
			for rank := range nodes {
				joining.Go(func() {
					n, err := Join(ctx, Config{
						Seeds: []string{seed.Addr()}, Listen: "127.0.0.1:0", Transports: names(test.transport), Log: logger,
						Request: client.Request{Token: token, Rank: &rank, Host: host.ID(), Name: "test", CertificateGrace: test.grace, Log: logger},
					})
					if err != nil {
						t.Errorf("rank %d: %v", rank, err)
						return
					}
					nodes[rank] = n
				})
			}
			joining.Wait()
			seed.Close()
			for _, n := range nodes {
				if n == nil {
					t.FailNow()
				}
				defer n.Close()
			}
			var expiry time.Time
			for _, n := range nodes {
				<-n.Session.Ended() // It knows that the seed has gone.
				if e := n.Session.Identity.NotAfter(); e.After(expiry) {
					expiry = e
				}
			}
			time.Sleep(time.Until(expiry.Add(100 * time.Millisecond)))
			peer := nodes[1].ID().String()
			conn, err := nodes[0].paths[0].Transport.Dial(ctx, nodes[0].View.Nodes[1].Addr(), peer)
			if err == nil {
				defer conn.Close()
			}
			switch accepted := test.grace > time.Second; {
			case accepted && err != nil:
				t.Errorf("dialing a member after the expiry of both certificates: %v", err)
			case !accepted && (!errors.Is(err, transport.ErrIdentity) || !strings.Contains(err.Error(), "expired at") || !strings.Contains(err.Error(), "NEXAR_CERTIFICATE_GRACE_SECS")):
				t.Errorf("dialing after the grace: %v, want the expiry and the grace", err)
			}
			for _, want := range []string{"no seed answers to renew the certificate", "the certificate of this node has expired"} {
				if !strings.Contains(log.String(), want) {
					t.Errorf("the log has no warning %q:\n%s", want, log.String())
				}
			}
		})
	}
}
