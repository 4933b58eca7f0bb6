package pki

import (
	"crypto/tls"
	"errors"

	"github.com/nexar-go/nexar/internal/membership"
)

// A Prober has the credentials to find out which node listens at an address. A handshake ends
// when the other side has shown its certificate, so that it makes no connection there. It proves
// nothing: a host on the path can show the certificate of a node.
type Prober struct {
	found func(membership.NodeID)
}

// NewProber returns a Prober that calls found with the node that answers.
func NewProber(found func(membership.NodeID)) *Prober { return &Prober{found} }

// errProbed ends each handshake of a Prober.
var errProbed = errors.New("the handshake was a probe")

// Server returns nil: a Prober only dials.
func (p *Prober) Server() *tls.Config { return nil }

// Client returns the TLS configuration for a probe.
func (p *Prober) Client(string) *tls.Config {
	c := baseConfig(NodeProtocol)
	c.InsecureSkipVerify = true
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) > 0 && cs.NegotiatedProtocol == NodeProtocol {
			p.found(hashID(cs.PeerCertificates[0].RawSubjectPublicKeyInfo))
		}
		return errProbed
	}
	return c
}

// Peer returns an error: no handshake of a Prober is completed.
func (p *Prober) Peer(tls.ConnectionState) (string, error) { return "", untrusted(errProbed) }
