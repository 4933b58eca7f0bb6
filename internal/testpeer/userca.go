package testpeer

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
)

// NewUserCA writes the certificate and the key of a CA of the user to two files, as they are for
// nexar.SeedConfig. change, if not nil, changes the certificate before it is signed.
func NewUserCA(tb testing.TB, name string, change func(*x509.Certificate)) (certFile, keyFile string) {
	tb.Helper()
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	if change != nil {
		change(template)
	}
	ca := &CA{key: NewKey(tb)}
	cert := ca.sign(tb, template, nil, &ca.key.PublicKey)
	key, err := x509.MarshalPKCS8PrivateKey(ca.key)
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	write := func(path, kind string, der []byte) {
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
			tb.Fatal(err)
		}
	}
	write(certFile, "CERTIFICATE", cert.Raw)
	write(keyFile, "PRIVATE KEY", key)
	return certFile, keyFile
}
