package ranks

import (
	"fmt"
	"os"
	"path/filepath"
)

// The variables with the token of the cluster. A process gets at most one of them.
const (
	tokenVariable     = "NEXAR_CLUSTER_TOKEN"
	tokenFileVariable = "NEXAR_CLUSTER_TOKEN_FILE"
)

// A tokenFile is a file of mode 0600 with the token, for the ranks and for commands of this user.
type tokenFile struct {
	path   string
	remove func()
}

// newTokenFile makes the file in memory, where this system can, or in the temporary directory.
func newTokenFile(token string) (*tokenFile, error) {
	if f, ok := memoryTokenFile(token); ok {
		return f, nil
	}
	dir, err := makeDir()
	if err != nil {
		return nil, err
	}
	f := &tokenFile{filepath.Join(dir, "token"), func() { _ = os.RemoveAll(dir) }}
	if err := os.WriteFile(f.path, []byte(token+"\n"), 0o600); err != nil {
		f.remove()
		return nil, err
	}
	return f, nil
}

// close removes the file. f may be nil.
func (f *tokenFile) close() {
	if f != nil {
		f.remove()
	}
}

// pass sets the variable of the token in the environment of a rank. Without the file it is the token itself:
// a root without /proc and a temporary directory has no place for the file.
func (f *tokenFile) pass(e *environment, token string) {
	e.unset(tokenVariable)
	e.unset(tokenFileVariable)
	if f != nil {
		e.set(tokenFileVariable, f.path)
	} else {
		e.set(tokenVariable, token)
	}
}

// option returns the assignment before a command that needs the token.
func (f *tokenFile) option() (string, error) {
	if f == nil {
		return "", fmt.Errorf("the token of the cluster cannot be written to a file: set TMPDIR, or %s", tokenVariable)
	}
	return tokenFileVariable + "=" + shellQuote(f.path) + " ", nil
}
