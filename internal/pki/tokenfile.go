package pki

import (
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// tokenCheck is the time after which a file with a token is read again.
	tokenCheck = time.Second
	// tokenGrace is the time for which the token before a change is accepted. Kubernetes renews the files of its pods within two minutes.
	tokenGrace = 5 * time.Minute
)

// A tokenFile is a file with a token, which may be replaced while the process runs.
type tokenFile struct {
	path   string
	strong bool // its first token is one of NewToken, and so must be the next

	mu       sync.Mutex
	checked  time.Time
	current  Token
	previous Token // accepted until grace
	grace    time.Time
}

// tokens returns the token in the file, and the one before for tokenGrace after a change. A file that cannot be used changes nothing.
func (f *tokenFile) tokens() []Token {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Sub(f.checked) >= tokenCheck {
		f.checked = now
		t, err := readTokenFile(context.Background(), f.path)
		if err == nil && t != f.current && (!f.strong || t.CheckStrength() == nil) {
			f.current, f.previous, f.grace = t, f.current, now.Add(tokenGrace)
		}
	}
	if now.Before(f.grace) {
		return []Token{f.current, f.previous}
	}
	return []Token{f.current}
}

// Accepted returns the tokens that prove membership at present, the newest first: the token itself or, if it comes from
// a file that was changed since, the one in the file and for some minutes the one before.
func (t Token) Accepted() []Token {
	if t.file == nil {
		return []Token{t}
	}
	list := t.file.tokens()
	for i := range list {
		list[i] = list[i].Of(t.job)
	}
	return list
}

// Offered returns the token to prove to others. After a change it is either of [Token.Accepted], at random: others get the
// new file a while earlier or later than this process, so a caller that is refused tries again.
func (t Token) Offered() Token {
	accepted := t.Accepted()
	return accepted[rand.N(len(accepted))]
}

// ReadTokenFile returns the token in a file of this user or root, which other users cannot access: mode
// 0600 or 0400, or 0440 or 0640 if root owns it and this process is of its group. See [input.Read]. The token follows later
// changes of a regular file; see [Token.Accepted].
func ReadTokenFile(ctx context.Context, path string) (Token, error) {
	t, err := readTokenFile(ctx, path)
	if info, statErr := os.Stat(path); err == nil && statErr == nil && info.Mode()&fs.ModeType == 0 {
		t.file = &tokenFile{path: path, strong: t.CheckStrength() == nil, checked: time.Now(), current: t}
	}
	return t, err
}

// readTokenFile is a single ReadTokenFile.
func readTokenFile(ctx context.Context, path string) (Token, error) {
	b, err := readChecked(ctx, path, tokenBytesMax+1024, true)
	if err != nil {
		return Token{}, fmt.Errorf("token file %q: %w", path, err)
	}
	if strings.TrimSpace(string(b)) == "" {
		return Token{}, fmt.Errorf("token file %q is empty; 'nexar token' makes a token", path)
	}
	t, err := ParseToken(string(b))
	if err != nil {
		return Token{}, fmt.Errorf("token file %q: %w", path, err)
	}
	return t, nil
}
