package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/nexar-go/nexar/internal/membership"
)

// A Key is the private key of a node. It never leaves the process.
type Key struct {
	private *ecdsa.PrivateKey
	id      membership.NodeID
}

// NewKey makes the key of a new node.
func NewKey() (*Key, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a node's key: %w", err)
	}
	id, err := keyID(&private.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("making a node's key: %w", err)
	}
	return &Key{private, id}, nil
}

// ID returns the identity of the node: the first 16 bytes of the SHA-256 of its public key,
// encoded as SubjectPublicKeyInfo. To take the identity of another node, an attacker would need
// a key with the same hash.
func (k *Key) ID() membership.NodeID { return k.id }

// Request returns a certificate signing request (PKCS #10, DER). It proves to the CA that this
// node has the key, and has no other content.
func (k *Key) Request() ([]byte, error) { return k.request(k.id.String()) }

func (k *Key) request(name string) ([]byte, error) {
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: name}}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, k.private)
	if err != nil {
		return nil, fmt.Errorf("making a signing request: %w", err)
	}
	return der, nil
}

// RequestOver is Request bound to a TLS session: the seed refuses it in another session ([Bound]).
func (k *Key) RequestOver(cs tls.ConnectionState) ([]byte, error) {
	session, err := requestSession(cs)
	if err != nil {
		return nil, err
	}
	return k.request(k.id.String() + " " + session)
}

// Bound reports whether a signing request was made for a TLS session.
func Bound(request []byte, cs tls.ConnectionState) bool {
	session, err := requestSession(cs)
	if err != nil {
		return false
	}
	csr, err := x509.ParseCertificateRequest(request)
	return err == nil && csr.CheckSignature() == nil && strings.HasSuffix(csr.Subject.CommonName, " "+session)
}

// requestSession returns an identifier of a TLS session that only its two sides can compute.
func requestSession(cs tls.ConnectionState) (string, error) {
	material, err := cs.ExportKeyingMaterial("EXPORTER-nexar-request", nil, 16)
	if err != nil {
		return "", fmt.Errorf("making a signing request: %w", err)
	}
	return hex.EncodeToString(material), nil
}

func keyID(pub *ecdsa.PublicKey) (membership.NodeID, error) {
	spki, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return membership.NodeID{}, err
	}
	return hashID(spki), nil
}

func hashID(spki []byte) (id membership.NodeID) {
	sum := sha256.Sum256(spki)
	copy(id[:], sum[:])
	return id
}
