package pki

import (
	"crypto/tls"
	"errors"

	"github.com/nexar-go/nexar/internal/membership"
)

// An AddressCheck has the credentials to find out which node listens at an address. A handshake ends
// when the other side has shown its certificate, so that it makes no connection there. It proves
// nothing: a host on the path can show the certificate of a node.
type AddressCheck struct {
	found func(membership.NodeID)
}

// NewAddressCheck returns an AddressCheck that calls found with the node that answers.
func NewAddressCheck(found func(membership.NodeID)) *AddressCheck { return &AddressCheck{found} }

// errChecked ends each handshake of an AddressCheck.
var errChecked = errors.New("the handshake was only to check the address")

// Server returns nil: an AddressCheck only dials.
func (p *AddressCheck) Server() *tls.Config { return nil }

// Client returns the TLS configuration for the check.
func (p *AddressCheck) Client(string) *tls.Config {
	c := baseConfig(NodeProtocol)
	c.InsecureSkipVerify = true
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) > 0 && cs.NegotiatedProtocol == NodeProtocol {
			p.found(hashID(cs.PeerCertificates[0].RawSubjectPublicKeyInfo))
		}
		return untrusted(errChecked)
	}
	return c
}

// Peer returns an error: no handshake of an AddressCheck is completed.
func (p *AddressCheck) Peer(tls.ConnectionState) (string, error) { return "", untrusted(errChecked) }
