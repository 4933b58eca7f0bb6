package pki

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	authorityFile = "ca.pem"

	// authorityBytesMax bounds the size of a file with certificates and keys. A CA needs far less.
	authorityBytesMax = 64 << 10
)

// OpenAuthority returns the cluster CA of a directory. If the directory has none, it makes one.
// Certificate and key are in one file, so that both exist or neither. If several seeds make a
// CA concurrently, all get the same one. A file that is damaged, or that other users can
// read, is an error: a new CA would exclude every node with a certificate of the old one.
func OpenAuthority(dir string) (*Authority, error) { return (*Issuer)(nil).Authority(dir) }

// createAuthority makes a new CA and writes it to path unless the file exists. The file is
// complete before it gets its name. A link, unlike a rename, does not replace a file that
// another seed has made meanwhile.
func (i *Issuer) createAuthority(path string) error {
	a, err := i.newAuthority(time.Now())
	if err != nil {
		return err
	}
	text, err := a.Marshal()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), authorityFile+".new-*") // mode 0600
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

func loadAuthority(path string) (*Authority, error) {
	text, err := readChecked(context.Background(), path, authorityBytesMax, true)
	if err != nil {
		return nil, err
	}
	return parseAuthority(text, time.Now())
}

const (
	certificateBlock = "CERTIFICATE"
	keyBlock         = "PRIVATE KEY"
)

// Marshal encodes an authority with its private key as PEM.
func (a *Authority) Marshal() ([]byte, error) {
	key, err := x509.MarshalPKCS8PrivateKey(a.key)
	if err != nil {
		return nil, err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: a.cert.Raw})
	return append(text, pem.EncodeToMemory(&pem.Block{Type: keyBlock, Bytes: key})...), nil
}

// ParseAuthority decodes the result of [Authority.Marshal].
func ParseAuthority(text []byte) (*Authority, error) { return parseAuthority(text, time.Now()) }

func parseAuthority(text []byte, now time.Time) (*Authority, error) {
	first, rest := pem.Decode(text)
	if first == nil || first.Type != certificateBlock {
		return nil, errors.New("damaged: does not begin with a certificate")
	}
	second, rest := pem.Decode(rest)
	if second == nil || second.Type != keyBlock {
		return nil, errors.New("damaged: no private key behind the certificate")
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("damaged: more than a certificate and a key")
	}
	cert, err := x509.ParseCertificate(first.Bytes)
	if err != nil {
		return nil, fmt.Errorf("damaged: certificate: %w", err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(second.Bytes)
	if err != nil {
		return nil, fmt.Errorf("damaged: private key: %w", err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || key.Curve != elliptic.P256() {
		return nil, errors.New("the private key is not an ECDSA key on P-256")
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, errors.New("damaged: the private key does not belong to the certificate")
	}
	if err := checkAuthority(cert, now); err != nil {
		return nil, err
	}
	return &Authority{key: key, cert: cert}, nil
}

// checkAuthority returns an error if cert is not the certificate of a cluster CA. It cannot
// check the signature of a CA of the user.
func checkAuthority(cert *x509.Certificate, now time.Time) error {
	if !cert.IsCA || !cert.BasicConstraintsValid || cert.KeyUsage&x509.KeyUsageCertSign == 0 {
		return errors.New("the certificate is not that of a CA")
	}
	if bytes.Equal(cert.RawIssuer, cert.RawSubject) { // otherwise the Issuer or Roots decide
		if err := cert.CheckSignatureFrom(cert); err != nil {
			return fmt.Errorf("the certificate of the CA is not signed by itself: %w", err)
		}
	}
	if now.After(cert.NotAfter) {
		return fmt.Errorf("the certificate of the CA expired on %v", cert.NotAfter)
	}
	return nil
}
