package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

func mustParse(t testing.TB, der []byte) *x509.Certificate {
	t.Helper()
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func newIdentity(t testing.TB, a *Authority) *Identity {
	t.Helper()
	key := newKey(t)
	cert, _, err := a.Sign(request(t, key), 0)
	if err != nil {
		t.Fatal(err)
	}
	id, err := NewIdentity(key, cert, a.Certificate())
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// forge makes a certificate of the CA of a with any content, for a new key.
func forge(t testing.TB, a *Authority, change func(c *x509.Certificate, id membership.NodeID)) tls.Certificate {
	t.Helper()
	key := newKey(t)
	template := nodeTemplate(a.Cluster(), key.ID(), time.Now(), time.Hour)
	change(template, key.ID())
	der, err := a.sign(template, &key.private.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key.private}
}

// impostors are certificates that a node must refuse, each with a part of the expected error.
func impostors(t *testing.T, a *Authority) map[string]tls.Certificate {
	other := newAuthority(t)
	victim := newIdentity(t, a)
	joining, err := a.Joining()
	if err != nil {
		t.Fatal(err)
	}
	attacker := newKey(t)
	uri := func(cluster, id string) []*url.URL {
		return []*url.URL{{Scheme: "nexar", Host: cluster, Path: "/" + id}}
	}
	selfSigned := func() tls.Certificate {
		key, _ := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		id, _ := keyID(&key.PublicKey)
		c := nodeTemplate(a.Cluster(), id, time.Now(), time.Hour)
		der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
		if err != nil {
			t.Fatal(err)
		}
		return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	}
	// A node that acts as a CA and sends its own certificate as an intermediate one.
	signedByNode := func() tls.Certificate {
		key := newKey(t)
		c := nodeTemplate(a.Cluster(), key.ID(), time.Now(), time.Hour)
		parent := victim.current.Load()
		der, err := x509.CreateCertificate(rand.Reader, c, parent.Leaf, &key.private.PublicKey, parent.PrivateKey)
		if err != nil {
			t.Fatal(err)
		}
		return tls.Certificate{Certificate: [][]byte{der, parent.Certificate[0]}, PrivateKey: key.private}
	}
	edit := func(change func(c *x509.Certificate, id membership.NodeID)) tls.Certificate {
		return forge(t, a, change)
	}
	return map[string]tls.Certificate{
		"was not signed by the CA of this cluster: other cluster":      *newIdentity(t, other).current.Load(),
		"was not signed by the CA of this cluster: self-signed":        selfSigned(),
		"was not signed by the CA of this cluster: signed by a node":   signedByNode(),
		"was not signed by the CA of this cluster: forged in its name": forge(t, other, func(c *x509.Certificate, id membership.NodeID) { c.URIs = uri(a.Cluster(), id.String()) }),
		"expired: yesterday": edit(func(c *x509.Certificate, _ membership.NodeID) {
			c.NotBefore, c.NotAfter = time.Now().Add(-48*time.Hour), time.Now().Add(-24*time.Hour)
		}),
		"valid only from: tomorrow":          edit(func(c *x509.Certificate, _ membership.NodeID) { c.NotBefore = time.Now().Add(24 * time.Hour) }),
		"key usage: client only":             edit(func(c *x509.Certificate, _ membership.NodeID) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }),
		"key usage: server only":             edit(func(c *x509.Certificate, _ membership.NodeID) { c.ExtKeyUsage = c.ExtKeyUsage[1:] }),
		"key usage: none":                    edit(func(c *x509.Certificate, _ membership.NodeID) { c.ExtKeyUsage = nil }),
		"key usage: no signature":            edit(func(c *x509.Certificate, _ membership.NodeID) { c.KeyUsage = x509.KeyUsageKeyEncipherment }),
		"key usage: a CA":                    edit(func(c *x509.Certificate, _ membership.NodeID) { c.IsCA = true }),
		"key usage: the CA itself":           {Certificate: [][]byte{a.Certificate()}, PrivateKey: a.key},
		"key usage: the seed":                *joining.cert.Load(),
		"is of cluster: other name":          edit(func(c *x509.Certificate, id membership.NodeID) { c.URIs = uri(other.Cluster(), id.String()) }),
		"but its key is of another: victim":  edit(func(c *x509.Certificate, _ membership.NodeID) { c.URIs = uri(a.Cluster(), victim.ID().String()) }),
		"does not name a node: no name":      edit(func(c *x509.Certificate, _ membership.NodeID) { c.URIs = nil }),
		"does not name a node: bad name":     edit(func(c *x509.Certificate, _ membership.NodeID) { c.URIs = uri(a.Cluster(), "zero") }),
		"does not name a node: two names":    edit(func(c *x509.Certificate, id membership.NodeID) { c.URIs = append(c.URIs, uri(a.Cluster(), "0")...) }),
		"does not name a node: other scheme": edit(func(c *x509.Certificate, _ membership.NodeID) { c.URIs[0].Scheme = "https" }),
		"invalid signature: stolen":          {Certificate: victim.current.Load().Certificate, PrivateKey: attacker.private},
	}
}

// TestImpostors makes handshakes with each impostor as client and as server.
func TestImpostors(t *testing.T) {
	a := newAuthority(t)
	node := newIdentity(t, a)
	for name, cert := range impostors(t, a) {
		want, _, _ := strings.Cut(name, ": ")
		t.Run(name, func(t *testing.T) {
			caller := baseConfig(NodeProtocol)
			caller.InsecureSkipVerify = true
			// GetClientCertificate, because crypto/tls would not send an
			// unsuitable certificate otherwise.
			caller.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &cert, nil }
			server, _ := handshake(t, node.Server(), caller)
			checkRefused(t, "as client", server.err, want)

			called := baseConfig(NodeProtocol)
			called.Certificates = []tls.Certificate{cert}
			called.ClientAuth = tls.RequireAnyClientCert
			_, client := handshake(t, called, node.Client(""))
			checkRefused(t, "as server", client.err, want)
		})
	}
}

func checkRefused(t *testing.T, as string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: error %v, want one about %q", as, err, want)
	}
	// crypto/tls detects a bad signature itself.
	if want != "invalid signature" && !errors.Is(err, transport.ErrIdentity) {
		t.Errorf("%s: error %v, want a transport.ErrIdentity", as, err)
	}
}

// A certificate in the cache is refused once it has expired.
func TestCacheChecksTheTime(t *testing.T) {
	a := newAuthority(t)
	v := newVerifier(a.cert)
	leaf := newIdentity(t, a).current.Load().Leaf
	now := time.Now()
	for _, step := range []struct {
		at time.Time
		ok bool
	}{{now, true}, {now.Add(CertificateLife + time.Minute), false}, {now.Add(-time.Hour), false}, {now, true}} {
		if _, err := v.node(leaf, step.at); (err == nil) != step.ok {
			t.Errorf("at %v: error %v, want none: %v", step.at, err, step.ok)
		}
	}
}

func TestCacheIsBounded(t *testing.T) {
	a := newAuthority(t)
	v := newVerifier(a.cert)
	for i := range seenMax {
		v.seen[[32]byte{1, byte(i >> 8), byte(i)}] = leaf{}
	}
	if _, err := v.node(newIdentity(t, a).current.Load().Leaf, time.Now()); err != nil {
		t.Fatal(err)
	}
	if len(v.seen) != 1 {
		t.Errorf("%d entries, want the cache to have started again", len(v.seen))
	}
}

// A refused certificate is not in the cache.
func TestCacheHoldsNoImpostors(t *testing.T) {
	a := newAuthority(t)
	v := newVerifier(a.cert)
	for name, cert := range impostors(t, a) {
		if strings.HasPrefix(name, "invalid signature") {
			continue // the certificate itself is good
		}
		for range 2 {
			if id, err := v.node(mustParse(t, cert.Certificate[0]), time.Now()); err == nil {
				t.Errorf("%s: accepted as %v", name, id)
			}
		}
	}
	if len(v.seen) > 0 {
		t.Errorf("%d impostors are cached", len(v.seen))
	}
}
