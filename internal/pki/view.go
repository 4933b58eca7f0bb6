package pki

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"github.com/nexar-go/nexar/internal/membership"
)

// SignView signs the hash of a view. All seeds of a cluster have the same authority, so nodes can
// verify the views of each of them.
func (a *Authority) SignView(epoch uint64, h membership.Hash) ([]byte, error) {
	digest := viewDigest(epoch, h)
	return ecdsa.SignASN1(rand.Reader, a.key, digest[:])
}

// CheckView returns an error if the CA of the cluster has not signed the hash of a view.
func (i *Identity) CheckView(epoch uint64, h membership.Hash, signature []byte) error {
	digest := viewDigest(epoch, h)
	if i.peers.key == nil || !ecdsa.VerifyASN1(i.peers.key, digest[:], signature) {
		return errors.New("it was not signed by the CA of the cluster")
	}
	return nil
}

// viewDigest returns the signed digest of a view. Its text differs from all certificates, which the
// key of the CA signs too.
func viewDigest(epoch uint64, h membership.Hash) [sha256.Size]byte {
	b := append([]byte("nexar view"), 0)
	b = binary.BigEndian.AppendUint64(b, epoch)
	return sha256.Sum256(append(b, h[:]...))
}
