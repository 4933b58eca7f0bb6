package pki

import (
	"context"
	"crypto"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// An Issuer is a CA of the user, with its private key. It signs the certificate of a cluster CA,
// and nothing else: the seed does not keep its key. A nil *Issuer stands for a cluster CA that
// signs its own certificate.
type Issuer struct {
	cert *x509.Certificate
	key  crypto.PrivateKey
}

// ReadIssuer reads the certificate of a CA and its private key (PEM), which may be in the same
// file. Other users must have no access to the file of the key, as to that of a token,
// and must not be able to change that of the certificate. An error says why the CA cannot sign the certificate of a cluster CA.
func ReadIssuer(ctx context.Context, certFile, keyFile string) (*Issuer, error) {
	key, err := readChecked(ctx, keyFile, authorityBytesMax, true)
	if err != nil {
		return nil, fmt.Errorf("key of the CA %q: %w", keyFile, err)
	}
	certs := key
	if certFile != keyFile { // A pipe can be read once only.
		if certs, err = readChecked(ctx, certFile, authorityBytesMax, false); err != nil {
			return nil, fmt.Errorf("certificate of the CA %q: %w", certFile, err)
		}
	}
	pair, err := tls.X509KeyPair(certs, key)
	if err != nil {
		return nil, fmt.Errorf("CA %q with the key %q: %w", certFile, keyFile, err)
	}
	if n := len(pair.Certificate); n > 1 {
		return nil, fmt.Errorf("CA %q: %d certificates, expected only that of the key %q", certFile, n, keyFile)
	}
	if err := checkIssuer(pair.Leaf, time.Now()); err != nil {
		return nil, fmt.Errorf("CA %q: certificate of %q %w", certFile, pair.Leaf.Subject, err)
	}
	i := &Issuer{pair.Leaf, pair.PrivateKey}
	// A trial finds everything else, such as name constraints and extended key usage.
	if _, err := i.newAuthority(time.Now()); err != nil {
		return nil, fmt.Errorf("CA %q: %w", certFile, err)
	}
	return i, nil
}

// checkIssuer returns an error if the CA of a certificate must not sign that of a cluster CA.
func checkIssuer(cert *x509.Certificate, now time.Time) error {
	switch {
	case !cert.BasicConstraintsValid || !cert.IsCA:
		return errors.New("is not that of a CA: it needs the basic constraint CA:TRUE")
	case cert.KeyUsage != 0 && cert.KeyUsage&x509.KeyUsageCertSign == 0:
		return errors.New("does not permit signing certificates: it needs the key usage keyCertSign")
	case cert.MaxPathLen == 0:
		return errors.New("has the path length 0, which permits no CA below it: it needs at least 1, since it signs the CA of the cluster")
	case now.Before(cert.NotBefore):
		return fmt.Errorf("is valid only from %s, by this clock it is %s", cert.NotBefore.Format(time.RFC3339), now.Format(time.RFC3339))
	case now.After(cert.NotAfter):
		return fmt.Errorf("expired at %s, by this clock it is %s", cert.NotAfter.Format(time.RFC3339), now.Format(time.RFC3339))
	}
	return nil
}

// Roots returns the certificate of the CA as roots, nil for a nil *Issuer.
func (i *Issuer) Roots() *Roots {
	if i == nil {
		return nil
	}
	return newRoots(i.cert)
}

// Authority is [OpenAuthority], with a cluster CA that i has signed. A cluster CA that exists
// already and that i has not signed is an error. An empty dir is none: the cluster CA is new.
func (i *Issuer) Authority(dir string) (*Authority, error) {
	if dir == "" {
		return i.newAuthority(time.Now())
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory of the cluster CA: %w", err)
	}
	path := filepath.Join(dir, authorityFile)
	a, err := loadAuthority(path)
	if errors.Is(err, os.ErrNotExist) {
		if err := i.createAuthority(path); err != nil {
			return nil, fmt.Errorf("keeping the cluster CA: %w", err)
		}
		a, err = loadAuthority(path)
	}
	if err == nil && i != nil {
		a.issuer = i.cert
		err = a.CheckIssuer(a)
	}
	if err != nil {
		return nil, fmt.Errorf("cluster CA in %s: %w", path, err)
	}
	return a, nil
}

// CheckIssuer returns an error if a was signed by a CA of the user and other was not signed by
// the same CA.
func (a *Authority) CheckIssuer(other *Authority) error {
	if a.issuer == nil || other == nil {
		return nil
	}
	if err := other.cert.CheckSignatureFrom(a.issuer); err != nil {
		return fmt.Errorf("the CA of this cluster was signed by %q, not by the CA %q of this seed: "+
			"start the seed with the former, or make a new cluster with an empty state directory: %w", other.cert.Issuer, a.issuer.Subject, err)
	}
	return nil
}

// try signs the certificate of a node by a cluster CA, and verifies it up to the CA of the user.
func (i *Issuer) try(a *Authority, now time.Time) error {
	key, err := NewKey()
	if err != nil {
		return err
	}
	der, err := a.sign(nodeTemplate(a.Cluster(), key.id, now, time.Hour), &key.private.PublicKey)
	if err != nil {
		return err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return err
	}
	if err := i.Roots().verify(cert, a.cert, now); err != nil {
		return fmt.Errorf("nodes would refuse certificates below %q: %w", i.cert.Subject, err)
	}
	return nil
}
