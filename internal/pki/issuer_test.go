package pki

import (
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testpeer"
	"github.com/nexar-go/nexar/transport"
)

// newIssuer returns a CA of the user and its certificate as roots.
func newIssuer(t *testing.T, name string) (*Issuer, *Roots) {
	t.Helper()
	cert, key := testpeer.NewUserCA(t, name, nil)
	i, err := ReadIssuer(t.Context(), cert, key)
	if err != nil {
		t.Fatal(err)
	}
	roots, err := ReadRoots(t.Context(), cert)
	if err != nil {
		t.Fatal(err)
	}
	return i, roots
}

func authorityOf(t *testing.T, i *Issuer) *Authority {
	t.Helper()
	a, err := i.Authority("")
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// The CA of the user signs that of the cluster, and that one signs nodes, as without a CA of the user.
func TestIssuerSignsTheClusterCA(t *testing.T) {
	issuer, roots := newIssuer(t, "ours")
	a := authorityOf(t, issuer)
	key := newKey(t)
	cert, _, err := a.Sign(request(t, key), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := roots.Check(cert, a.Certificate()); err != nil {
		t.Error(err)
	}
	if _, err := NewIdentity(key, cert, a.Certificate()); err != nil {
		t.Error(err)
	}
	other := authorityOf(t, issuer)
	foreign, _, err := other.Sign(request(t, key), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewIdentity(key, foreign, a.Certificate()); !errors.Is(err, transport.ErrIdentity) {
		t.Errorf("certificate of another cluster of the same CA: error %v, want ErrIdentity", err)
	}
	if err := roots.Check(foreign, a.Certificate()); !errors.Is(err, transport.ErrIdentity) {
		t.Errorf("certificate of another cluster and this CA: error %v, want ErrIdentity", err)
	}
}

// Certificates below a CA are not valid for longer than the CA.
func TestCertificatesEndWithTheIssuer(t *testing.T) {
	end := time.Now().Add(30 * time.Minute).Truncate(time.Second)
	certFile, keyFile := testpeer.NewUserCA(t, "short", func(c *x509.Certificate) { c.NotAfter = end })
	issuer, err := ReadIssuer(t.Context(), certFile, keyFile)
	if err != nil {
		t.Fatal(err)
	}
	a := authorityOf(t, issuer)
	cert, _, err := a.Sign(request(t, newKey(t)), 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for name, der := range map[string][]byte{"cluster CA": a.Certificate(), "node": cert} {
		if got := mustParse(t, der).NotAfter; !got.Equal(end) {
			t.Errorf("%s: valid until %v, want %v", name, got, end)
		}
	}
}

func TestReadIssuerRefuses(t *testing.T) {
	good, goodKey := testpeer.NewUserCA(t, "good", nil)
	_, otherKey := testpeer.NewUserCA(t, "other", nil)
	both, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	twice := filepath.Join(t.TempDir(), "twice.pem")
	if err := os.WriteFile(twice, append(both, both...), 0o600); err != nil {
		t.Fatal(err)
	}
	past, future := time.Now().Add(-time.Hour), time.Now().Add(time.Hour)
	for name, test := range map[string]struct {
		change    func(*x509.Certificate)
		cert, key string
		want      string
	}{
		"no CA":         {change: func(c *x509.Certificate) { c.IsCA = false }, want: "CA:TRUE"},
		"key usage":     {change: func(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }, want: "keyCertSign"},
		"path length 0": {change: func(c *x509.Certificate) { c.MaxPathLenZero = true }, want: "path length 0"},
		"expired":       {change: func(c *x509.Certificate) { c.NotAfter = past }, want: "expired at"},
		"not valid yet": {change: func(c *x509.Certificate) { c.NotBefore, c.NotAfter = future, future.Add(time.Hour) }, want: "valid only from"},
		"extended key usage": {change: func(c *x509.Certificate) {
			c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
		}, want: "incompatible key usage"},
		"name constraint": {change: func(c *x509.Certificate) { c.PermittedURIDomains = []string{"example.com"} }, want: "not permitted"},
		"another key":     {cert: good, key: otherKey, want: "does not match"},
		"key as CA":       {cert: goodKey, key: goodKey, want: "failed to find"},
		"CA as key":       {cert: good, key: good, want: "rather than a key"},
		"no file":         {cert: good + ".missing", key: goodKey, want: ".missing"},
		"no key file":     {cert: good, key: goodKey + ".missing", want: ".missing"},
		"two CAs":         {cert: twice, key: goodKey, want: "2 certificates"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.change != nil {
				test.cert, test.key = testpeer.NewUserCA(t, "bad", test.change)
			}
			if _, err := ReadIssuer(t.Context(), test.cert, test.key); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
	if _, err := ReadIssuer(t.Context(), good, goodKey); err != nil {
		t.Error(err)
	}
}

func TestReadIssuerRefusesAKeyThatOthersCanRead(t *testing.T) {
	require.Have(t, "modes", runtime.GOOS != "windows", "Windows has no file modes")
	cert, key := testpeer.NewUserCA(t, "open", nil)
	if err := os.Chmod(key, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadIssuer(t.Context(), cert, key); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("error %v, want one with chmod 600", err)
	}
}

func TestReadRootsRefuses(t *testing.T) {
	_, key := testpeer.NewUserCA(t, "ours", nil)
	leaf, _ := testpeer.NewUserCA(t, "leaf", func(c *x509.Certificate) { c.IsCA = false })
	for file, want := range map[string]string{key: "no certificate", leaf: "CA:TRUE", key + ".missing": ""} {
		if _, err := ReadRoots(t.Context(), file); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", file, err, want)
		}
	}
}

// A directory with a cluster CA of another CA is an error: its nodes would be excluded.
func TestIssuerOfADirectory(t *testing.T) {
	ours, _ := newIssuer(t, "ours")
	theirs, _ := newIssuer(t, "theirs")
	dir := t.TempDir()
	first, err := ours.Authority(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := ours.Authority(dir)
	if err != nil || again.Cluster() != first.Cluster() {
		t.Errorf("opened again: %v, error %v, want cluster %s", again, err, first.Cluster())
	}
	if _, err := theirs.Authority(dir); err == nil || !containsAll(err.Error(), "CN=ours", "CN=theirs", filepath.Base(dir)) {
		t.Errorf("another CA: error %v, want one that names both", err)
	}
	own := t.TempDir()
	if _, err := OpenAuthority(own); err != nil {
		t.Fatal(err)
	}
	if _, err := ours.Authority(own); err == nil || !containsAll(err.Error(), "CN=nexar cluster", "CN=ours") {
		t.Errorf("a CA that signs itself: error %v, want one that names both", err)
	}
}

func containsAll(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

// A process with Roots accepts the certificate of a seed below them, and no other.
func TestRootsRefuseASeed(t *testing.T) {
	issuer, roots := newIssuer(t, "ours")
	other, _ := newIssuer(t, "theirs")
	ours := authorityOf(t, issuer)
	seed := func(a *Authority) *tls.Config {
		j, err := a.Joining()
		if err != nil {
			t.Fatal(err)
		}
		return j.Server()
	}
	// signed returns a certificate with a common name, signed by signer, and that of a.
	signed := func(a *Authority, cn string, signer *x509.Certificate, by crypto.PrivateKey) *tls.Config {
		key := newKey(t)
		template := nodeTemplate(a.Cluster(), key.ID(), time.Now(), time.Hour)
		template.Subject.CommonName = cn
		der, err := x509.CreateCertificate(rand.Reader, template, signer, &key.private.PublicKey, by)
		if err != nil {
			t.Fatal(err)
		}
		c := seed(ours)
		c.Certificates = []tls.Certificate{{Certificate: [][]byte{der, a.cert.Raw}, PrivateKey: key.private}}
		return c
	}
	own := newAuthority(t)
	for name, test := range map[string]struct {
		server *tls.Config
		want   []string // in the error; nil: accepted
	}{
		"our seed":            {seed(ours), nil},
		"seed of another CA":  {seed(authorityOf(t, other)), []string{"CN=theirs", "CN=ours", "--ca-cert"}},
		"seed without a CA":   {seed(newAuthority(t)), []string{"CN=nexar cluster", "CN=ours", "no CA of the user"}},
		"node of our cluster": {signed(ours, "nexar node x", ours.cert, ours.key), []string{"not that of a seed"}},
		"server of our CA":    {signed(ours, seedName(ours.Cluster()), issuer.cert, issuer.key), []string{"not signed by"}},
		"self-signed cluster": {signed(own, seedName(own.Cluster()), own.cert, own.key), []string{"CN=nexar cluster", "unknown authority"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, client := handshake(t, test.server, Joining{Roots: roots}.Client(""))
			switch {
			case test.want == nil && client.err != nil:
				t.Error(client.err)
			case test.want != nil && (!errors.Is(client.err, transport.ErrIdentity) || !containsAll(client.err.Error(), test.want...)):
				t.Errorf("error %v, want ErrIdentity with %q", client.err, test.want)
			}
			// Without roots, the token alone decides.
			if _, client := handshake(t, test.server, Joining{}.Client("")); client.err != nil {
				t.Errorf("without roots: %v", client.err)
			}
		})
	}
}
