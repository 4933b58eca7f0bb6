package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Roots are the CAs of the user that a process accepts. With them it talks only to seeds of a
// cluster whose CA one of them has signed. A nil *Roots accepts every cluster.
//
// Conns between nodes need no further check: they verify certificates against the cluster CA
// alone, and a cluster CA has a path length of 0.
type Roots struct {
	pool     *x509.CertPool
	subjects []string // quoted
}

func newRoots(certs ...*x509.Certificate) *Roots {
	r := &Roots{pool: x509.NewCertPool()}
	for _, c := range certs {
		r.pool.AddCert(c)
		r.subjects = append(r.subjects, fmt.Sprintf("%q", c.Subject))
	}
	return r
}

// ReadRoots reads certificates of CAs from a PEM file, which may contain other blocks. The file must belong
// to this user or root.
func ReadRoots(ctx context.Context, file string) (*Roots, error) {
	text, err := readChecked(ctx, file, authorityBytesMax, false)
	if err != nil {
		return nil, err
	}
	var certs []*x509.Certificate
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != certificateBlock {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("certificate %d: %w", len(certs)+1, err)
		}
		if !cert.BasicConstraintsValid || !cert.IsCA {
			return nil, fmt.Errorf("certificate of %q is not that of a CA: it needs the basic constraint CA:TRUE", cert.Subject)
		}
		certs = append(certs, cert)
	}
	if len(certs) == 0 {
		return nil, errors.New("no certificate in PEM form")
	}
	return newRoots(certs...), nil
}

// checkSeed verifies the certificate of the seed in a TLS session. It accepts only that of a seed:
// other certificates below the same CA, such as those of nodes, are refused.
func (r *Roots) checkSeed(cs tls.ConnectionState, now time.Time) error {
	if r == nil {
		return nil
	}
	chain := cs.PeerCertificates
	switch len(chain) {
	case 1:
		return r.refuse(chain[0], errors.New("the seed has no CA of the user"))
	case 2:
	default:
		return untrusted(fmt.Errorf("the seed has sent %d certificates, expected its own and that of its cluster CA", len(chain)))
	}
	if err := r.verify(chain[0], chain[1], now); err != nil {
		return r.refuse(chain[1], err)
	}
	if got, want := chain[0].Subject.CommonName, seedName(clusterOf(chain[1])); got != want {
		return untrusted(fmt.Errorf("peer's certificate is that of %q, not that of a seed (%q)", got, want))
	}
	return nil
}

// Check verifies the certificate of a node and that of its cluster CA, both DER.
func (r *Roots) Check(cert, ca []byte) error {
	if r == nil {
		return nil
	}
	node, err := x509.ParseCertificate(cert)
	if err != nil {
		return err
	}
	authority, err := x509.ParseCertificate(ca)
	if err != nil {
		return err
	}
	if err := r.verify(node, authority, time.Now()); err != nil {
		return r.refuse(authority, err)
	}
	return nil
}

// verify checks that a root has signed the certificate of a cluster CA, and that CA a leaf.
func (r *Roots) verify(leaf, authority *x509.Certificate, now time.Time) error {
	if authority.Subject.CommonName != clusterName(clusterOf(authority)) || !authority.MaxPathLenZero {
		return fmt.Errorf("%q is not the CA of a cluster", authority.Subject)
	}
	middle := x509.NewCertPool()
	middle.AddCert(authority)
	for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
		chains, err := leaf.Verify(x509.VerifyOptions{
			Roots: r.pool, Intermediates: middle, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
		})
		if err != nil {
			return err
		}
		// A CA of the user may sign the certificates of servers, which are no seeds.
		if !slices.ContainsFunc(chains, func(c []*x509.Certificate) bool { return len(c) == 3 && c[1].Equal(authority) }) {
			return fmt.Errorf("certificate of %q was not signed by %q", leaf.Subject, authority.Subject)
		}
	}
	return nil
}

// refuse returns the error about a seed with a certificate that no root has signed.
func (r *Roots) refuse(cert *x509.Certificate, reason error) error {
	return untrusted(fmt.Errorf("the certificate of the seed was signed by the CA %q, this process accepts %s: "+
		"set NEXAR_CA_FILE to the certificate of the seed's CA, or start the seed with an accepted CA (--ca-cert): %w",
		cert.Issuer, strings.Join(r.subjects, ", "), reason))
}
