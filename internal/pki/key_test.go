package pki

import (
	"crypto/sha256"
	"crypto/x509"
	"testing"
)

func TestKeyID(t *testing.T) {
	k := newKey(t)
	spki, err := x509.MarshalPKIXPublicKey(&k.private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(spki)
	if got, want := k.ID(), [16]byte(sum[:16]); got != want {
		t.Errorf("id %v, want %x", got, want)
	}
	if newKey(t).ID() == k.ID() {
		t.Error("two keys have the same id")
	}
}

func TestRequestIsSignedAndNamesNothingElse(t *testing.T) {
	csr, err := x509.ParseCertificateRequest(request(t, newKey(t)))
	if err != nil {
		t.Fatal(err)
	}
	if err := csr.CheckSignature(); err != nil {
		t.Error(err)
	}
	if len(csr.URIs)+len(csr.DNSNames)+len(csr.IPAddresses) > 0 {
		t.Errorf("request names %v %v %v", csr.URIs, csr.DNSNames, csr.IPAddresses)
	}
}
