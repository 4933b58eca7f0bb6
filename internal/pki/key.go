package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"

	"github.com/nexar-go/nexar/internal/member"
)

// A Key is the private key of a node. It never leaves the process.
type Key struct {
	private *ecdsa.PrivateKey
	id      member.NodeID
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

// ID is the identity of the node: the first 16 bytes of the SHA-256 of its
// public key, in the form that certificates hold (SubjectPublicKeyInfo). To
// take another node's identity one would need a key with the same hash.
func (k *Key) ID() member.NodeID { return k.id }

// Request is a certificate signing request (PKCS #10, DER). It proves to the
// CA that this node holds the key, and asks for nothing else.
func (k *Key) Request() ([]byte, error) {
	template := &x509.CertificateRequest{Subject: pkix.Name{CommonName: k.id.String()}}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, k.private)
	if err != nil {
		return nil, fmt.Errorf("making a signing request: %w", err)
	}
	return der, nil
}

func keyID(pub *ecdsa.PublicKey) (member.NodeID, error) {
	spki, err := x509.MarshalPKIXPublicKey(pub)
	if err != nil {
		return member.NodeID{}, err
	}
	return hashID(spki), nil
}

func hashID(spki []byte) (id member.NodeID) {
	sum := sha256.Sum256(spki)
	copy(id[:], sum[:])
	return id
}
