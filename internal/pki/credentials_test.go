package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"testing"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

// TestFailedVerification: all credentials fail a handshake with ErrIdentity. Transports rely on it.
func TestFailedVerification(t *testing.T) {
	a := newAuthority(t)
	x, y, stranger := newIdentity(t, a), newIdentity(t, a), newIdentity(t, newAuthority(t))
	j, err := a.Joining()
	if err != nil {
		t.Fatal(err)
	}
	seed, err := x509.ParseCertificate(j.cert.Load().Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	state := func(version uint16, protocol string, certs ...*x509.Certificate) tls.ConnectionState {
		return tls.ConnectionState{Version: version, NegotiatedProtocol: protocol, PeerCertificates: certs}
	}
	leaf := func(i *Identity) *x509.Certificate { return i.current.Load().Leaf }
	states := map[string]tls.ConnectionState{
		"TLS 1.2":        state(tls.VersionTLS12, NodeProtocol, leaf(y)),
		"other protocol": state(tls.VersionTLS13, "h3", leaf(y)),
		"no certificate": state(tls.VersionTLS13, NodeProtocol),
		"other cluster":  state(tls.VersionTLS13, NodeProtocol, leaf(stranger)),
		"other node":     state(tls.VersionTLS13, NodeProtocol, leaf(x)),
		"seed":           state(tls.VersionTLS13, JoinProtocol, seed),
	}
	for name, test := range map[string]struct {
		conf *tls.Config
		fits string // a state that passes
	}{
		"node accepts":   {x.Server(), "other node"},
		"node dials":     {x.Client(y.ID().String()), ""},
		"seed accepts":   {j.Server(), "seed"},
		"joiner dials":   {j.Client(""), "seed"},
		"joiner with CA": {Joining{Roots: newRoots(leaf(x))}.Client(""), ""},
		"address check":  {NewAddressCheck(func(membership.NodeID) {}).Client(""), ""},
	} {
		for what, state := range states {
			err := test.conf.VerifyConnection(state)
			if what == test.fits && err != nil || what != test.fits && !errors.Is(err, transport.ErrIdentity) {
				t.Errorf("%s, %s: error %v, want ErrIdentity unless it is %q", name, what, err, test.fits)
			}
		}
	}
	if _, client := handshake(t, stranger.Server(), x.Client("")); !errors.Is(client.err, transport.ErrIdentity) {
		t.Errorf("the handshake has failed with %v, want ErrIdentity", client.err)
	}
}
