package pki

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func TestNewToken(t *testing.T) {
	a, b := NewToken(), NewToken()
	if a == b {
		t.Error("two new tokens are the same")
	}
	if err := a.Check("10.0.0.1:7946"); err != nil {
		t.Error(err)
	}
	parsed, err := ParseToken("  " + a.Reveal() + "\r\n")
	if err != nil || parsed != a {
		t.Errorf("parsed %q (%v), want %q", parsed.Reveal(), err, a.Reveal())
	}
	if got, want := len(strings.ReplaceAll(a.Reveal(), "-", "")), 52; got != want {
		t.Errorf("%d characters of base32, want %d: 256 bits", got, want)
	}
}

func TestParseTokenRefuses(t *testing.T) {
	for _, text := range []string{"", " \n", "two words", "line\nbreak", "bell\a", "\xff", strings.Repeat("x", tokenBytesMax+1)} {
		if tok, err := ParseToken(text); err == nil {
			t.Errorf("%q is accepted as %q", text, tok.Reveal())
		}
	}
}

func TestTokenIsNotPrinted(t *testing.T) {
	tok := NewToken()
	for _, format := range []string{"%v", "%+v", "%s", "%#v", "%q"} {
		if text := fmt.Sprintf(format, tok) + fmt.Sprintf(format, struct{ T Token }{tok}); strings.Contains(text, tok.Reveal()) {
			t.Errorf("%s prints the token", format)
		}
	}
}

func TestTokenCheck(t *testing.T) {
	far, near := []string{"10.0.0.1:7946"}, []string{"127.0.0.1:7946", "[::1]:7946", "localhost:7946", "[::ffff:127.0.0.1]:1"}
	for _, test := range []struct {
		token Token
		addrs []string
		ok    bool
	}{
		{NewToken(), far, true},
		{NewToken(), nil, true},
		{Token{}, near, true},
		{Token{}, far, false},
		{Token{}, append(append([]string{}, near...), far...), false},
		{Token{}, []string{"0.0.0.0:7946"}, false},
		{Token{}, []string{":7946"}, false},
		{Token{}, nil, false},
	} {
		if err := test.token.Check(test.addrs...); (err == nil) != test.ok {
			t.Errorf("%v at %v: error %v, want none: %v", test.token, test.addrs, err, test.ok)
		}
	}
}

// Only the form of NewToken is strong: the entropy of another text is unknown.
func TestCheckStrength(t *testing.T) {
	for range 1000 {
		if err := NewToken().CheckStrength(); err != nil {
			t.Fatalf("a new token: %v", err)
		}
	}
	good := NewToken().Reveal()
	for name, text := range map[string]string{
		"none":                   "",
		"a word":                 "secret",
		"a repeated word":        "changemechangemechangeme123",
		"128 bits of hex":        "0123456789abcdef0123456789abcdef",
		"a UUID":                 "f81d4fae-7dec-11d0-a765-00a0c91e6bf6",
		"no hyphens":             strings.ReplaceAll(good, "-", ""),
		"upper case":             strings.ToUpper(good),
		"shorter":                good[:len(good)-5],
		"longer":                 good + "-aaaa",
		"one letter in the form": strings.Repeat("aaaa-", 12) + "aaaa",
		"a word in the form":     strings.Repeat("chan-geme-", 6) + "chan",
		"bits beyond the last":   good[:len(good)-1] + "b",
	} {
		err := Token{text: text}.CheckStrength()
		if err == nil || !strings.Contains(err.Error(), "nexar token") || text != "" && strings.Contains(err.Error(), text) {
			t.Errorf("%s: error %v, want one with the remedy and without the token", name, err)
		}
	}
}

func joinHandshake(t *testing.T) (server, client side) {
	t.Helper()
	j, err := newAuthority(t).Joining()
	if err != nil {
		t.Fatal(err)
	}
	server, client = handshake(t, j.Server(), Joining{}.Client("ignored"))
	if server.err != nil || client.err != nil {
		t.Fatal(server.err, client.err)
	}
	return server, client
}

func TestProof(t *testing.T) {
	server, client := joinHandshake(t)
	tok, other := NewToken(), NewToken()
	proof, err := tok.Proof(NodeRole, client.state)
	if err != nil {
		t.Fatal(err)
	}
	check := func(name string, tok Token, proof []byte, role Role, s side, want bool) {
		t.Helper()
		if got, err := tok.Verify(proof, role, s.state); got != want || err != nil {
			t.Errorf("%s: %v (%v), want %v", name, got, err, want)
		}
	}
	check("the right proof", tok, proof, NodeRole, server, true)
	check("another token", other, proof, NodeRole, server, false)
	check("its own proof, returned", tok, proof, SeedRole, server, false)
	check("no proof", tok, nil, NodeRole, server, false)
	check("a shorter proof", tok, proof[:16], NodeRole, server, false)
	check("a longer proof", tok, append(bytes.Clone(proof), 0), NodeRole, server, false)
	for i := range proof {
		bad := bytes.Clone(proof)
		bad[i] ^= 0x80
		check("a proof that is almost right", tok, bad, NodeRole, server, false)
	}
	// An interceptor has a session with the node and one with the seed.
	elsewhere, _ := joinHandshake(t)
	check("a relayed proof", tok, proof, NodeRole, elsewhere, false)
}

func TestProofNeedsTokenAndSession(t *testing.T) {
	_, client := joinHandshake(t)
	if _, err := (Token{}).Proof(NodeRole, client.state); err == nil {
		t.Error("no token makes a proof")
	}
	if ok, err := (Token{}).Verify(nil, NodeRole, client.state); ok || err == nil {
		t.Errorf("no token verifies: %v, %v", ok, err)
	}
	if _, err := NewToken().Proof(NodeRole, side{}.state); err == nil {
		t.Error("a token is proved without a session")
	}
}

// TestParsePeerToken: the token of the seeds must differ from the token of the nodes; the error
// says why a token is refused.
func TestParsePeerToken(t *testing.T) {
	cluster := NewToken()
	for name, test := range map[string]struct{ text, want string }{
		"none":           {"", ""},
		"another":        {NewToken().Reveal(), ""},
		"a weak one":     {"another", "it may be guessed"},
		"the cluster's":  {" " + cluster.Reveal() + "\n", "every node has"},
		"with a newline": {"two\nlines", "white space"},
		"only a newline": {"\n", "empty"},
	} {
		got, err := ParsePeerToken(test.text, cluster, false)
		switch {
		case test.want == "" && (err != nil || got.Reveal() != test.text):
			t.Errorf("%s: %q, %v", name, got.Reveal(), err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), "--peer-token-file")):
			t.Errorf("%s: error %v, want one that says %q", name, err, test.want)
		}
	}
	if got, err := ParsePeerToken("another", cluster, true); err != nil || got.Reveal() != "another" {
		t.Errorf("a weak token that is allowed: %q, %v", got.Reveal(), err)
	}
}
