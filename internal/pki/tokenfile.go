package pki

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// ReadTokenFile returns the token in a file of this user or root, which other users cannot access: mode
// 0600 or 0400, or 0440 or 0640 if root owns it and this process is of its group. The file may be a named
// pipe, as of a shell's <(command).
func ReadTokenFile(path string) (Token, error) {
	f, err := openChecked(path, true)
	if err != nil {
		return Token{}, fmt.Errorf("token file %q: %w", path, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, tokenBytesMax+1024))
	if err != nil {
		return Token{}, fmt.Errorf("token file %q: %w", path, withoutPath(err))
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

// withoutPath returns the cause of an error about a file, for callers that quote the path, which may hold
// characters that control a terminal.
func withoutPath(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}
