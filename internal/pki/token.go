package pki

import (
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base32"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Token is the secret that admits nodes to a cluster. The zero Token means no token. Its text
// does not appear in formatted output; Reveal returns it.
type Token struct {
	text string
	file *tokenFile // from which the token comes, or nil
	job  string     // that Of has bound the token to, or ""
}

const (
	tokenBytes    = 32
	tokenGroup    = 4 // characters between hyphens in a new token
	tokenBytesMax = 1024

	// tokenDistinctMin is the minimum number of different bytes in a token. Of 10^15 random tokens, one has fewer.
	tokenDistinctMin = 16
)

// NewToken makes a token of 256 random bits.
func NewToken() Token {
	b := make([]byte, tokenBytes)
	rand.Read(b) // never fails
	return encodeToken(b)
}

func tokenEncoding() *base32.Encoding { return base32.StdEncoding.WithPadding(base32.NoPadding) }

func encodeToken(b []byte) Token {
	text := strings.ToLower(tokenEncoding().EncodeToString(b))
	groups := slices.Collect(slices.Chunk([]byte(text), tokenGroup))
	return Token{text: string(bytes.Join(groups, []byte("-")))}
}

// ParseToken parses the content of a flag, a variable or a file. It ignores surrounding white
// space, and does not check the strength of the token.
func ParseToken(text string) (Token, error) {
	text = strings.TrimSpace(text)
	if text == "" {
		return Token{}, errors.New("the cluster token is empty")
	}
	if len(text) > tokenBytesMax {
		return Token{}, fmt.Errorf("the cluster token has %d bytes, at most %d", len(text), tokenBytesMax)
	}
	for _, r := range text {
		if !unicode.IsGraphic(r) || unicode.IsSpace(r) || r == utf8.RuneError {
			return Token{}, errors.New("the cluster token contains white space or characters that are not printable")
		}
	}
	return Token{text: text}, nil
}

// ParsePeerToken parses the token with which seeds authenticate each other, and checks its strength unless allowWeak.
// It must differ from the token of the cluster. Empty text means no token.
func ParsePeerToken(text string, cluster Token, allowWeak bool) (t Token, err error) {
	const name = "the token of the seeds (PeerToken, --peer-token-file)"
	if text == "" {
		return Token{}, nil
	}
	if t, err = ParseToken(text); err == nil && !allowWeak {
		err = t.CheckStrength()
	}
	if err != nil {
		return Token{}, fmt.Errorf("%s: %w", name, err)
	}
	if t.text == cluster.text {
		return Token{}, fmt.Errorf("%s is that of the cluster, which every node has: \"nexar token\" makes another", name)
	}
	return t, nil
}

// Of returns a token that only those know who have this one and the name of a job, so that worlds of several jobs with one secret
// cannot meet. The zero Token stays zero, and the empty job changes nothing.
func (t Token) Of(job string) Token {
	if t.IsZero() || job == "" {
		return t
	}
	mac := hmac.New(sha256.New, []byte(t.text))
	fmt.Fprintf(mac, "nexar token of job %s", job)
	derived := encodeToken(mac.Sum(nil))
	derived.file, derived.job = t.file, job
	return derived
}

// IsZero reports whether there is no token.
func (t Token) IsZero() bool { return t.text == "" }

// Reveal returns the text of the token.
func (t Token) Reveal() string { return t.text }

// String keeps the token out of logs and errors.
func (t Token) String() string {
	if t.IsZero() {
		return "no token"
	}
	return "token (not shown)"
}

// GoString keeps the token out of %#v.
func (t Token) GoString() string { return t.String() }

// Check returns an error if there is no token for a cluster at addrs. On loopback, which only this host
// reaches, a cluster can do without one.
func (t Token) Check(addrs ...string) error {
	if !t.IsZero() {
		return nil
	}
	for _, a := range addrs {
		if !isLoopback(a) {
			return fmt.Errorf("%s is not a loopback address, so the cluster needs a token: \"nexar token\" makes one", a)
		}
	}
	if len(addrs) == 0 {
		return errors.New("the cluster needs a token: \"nexar token\" makes one")
	}
	return nil
}

// CheckStrength returns an error unless the token has the form of [NewToken]. The entropy of another text
// cannot be known from the text, and an attacker that impersonates a seed gets a proof, and can test
// guesses against it at the speed of SHA-256.
func (t Token) CheckStrength() error {
	b, err := tokenEncoding().DecodeString(strings.ToUpper(strings.ReplaceAll(t.text, "-", "")))
	distinct := make(map[byte]bool)
	for _, c := range b {
		distinct[c] = true
	}
	if err != nil || len(b) != tokenBytes || encodeToken(b).text != t.text ||
		len(distinct) < tokenDistinctMin { // Someone has typed it.
		return errors.New("the token is not one that \"nexar token\" makes, so it may be guessed: \"nexar token\" makes one; NEXAR_ALLOW_WEAK_TOKEN=1 accepts any")
	}
	return nil
}

// isLoopback reports whether addr, a host:port, is a loopback address.
func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	return host == "localhost"
}

// A Role is a side of a conn for joining. Each side proves the token in its own role, so that
// it cannot return the proof that it has received.
type Role string

const (
	NodeRole Role = "node"
	SeedRole Role = "seed"
	// The roles of two seeds of one cluster: the client and the server of the conn.
	CallingPeerRole   Role = "calling peer"
	AnsweringPeerRole Role = "answering peer"
)

const (
	exporterLabel = "EXPORTER-nexar-join"
	exporterBytes = 32
)

// Proof returns a proof for the other side of a TLS session that role has the token. It is a
// MAC over keying material of the session (channel binding as in RFC 9266) and invalid in any
// other session, so that an interceptor between two sessions cannot forward it.
func (t Token) Proof(role Role, cs tls.ConnectionState) ([]byte, error) {
	if t.IsZero() {
		return nil, errors.New("no token to prove")
	}
	if cs.Version < tls.VersionTLS13 || !cs.HandshakeComplete {
		return nil, errors.New("a token is proved only over an established TLS 1.3 session")
	}
	material, err := cs.ExportKeyingMaterial(exporterLabel, nil, exporterBytes)
	if err != nil {
		return nil, fmt.Errorf("proving the token: %w", err)
	}
	mac := hmac.New(sha256.New, []byte(t.text))
	mac.Write([]byte(role))
	mac.Write([]byte{0})
	mac.Write(material)
	return mac.Sum(nil), nil
}

// Verify reports whether proof is the Proof of role, on the other side of the same session, for
// the same token. It takes constant time.
func (t Token) Verify(proof []byte, role Role, cs tls.ConnectionState) (bool, error) {
	want, err := t.Proof(role, cs)
	if err != nil {
		return false, err
	}
	return hmac.Equal(proof, want), nil
}
