package pki

import (
	"context"
	"fmt"
	"strings"
)

// ReadTokenFile returns the token in a file of this user or root, which other users cannot access: mode
// 0600 or 0400, or 0440 or 0640 if root owns it and this process is of its group. See [input.Read].
func ReadTokenFile(ctx context.Context, path string) (Token, error) {
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
