package pki

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
)

// ReadTokenFile returns the token in a file, which only its owner may access: mode 0600 or 0400. The
// file may be a named pipe, as of a shell's <(command).
func ReadTokenFile(path string) (Token, error) {
	f, err := os.Open(path)
	if err != nil {
		return Token{}, tokenFileError(path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return Token{}, tokenFileError(path, err)
	}
	// On Windows the mode bits do not tell which users have access.
	mode := info.Mode()
	if runtime.GOOS != "windows" && mode.Perm()&0o077 != 0 {
		return Token{}, fmt.Errorf("token file %q has mode %04o, so that other users can read or change it: run chmod 600 on it", path, mode.Perm())
	}
	if mode.IsDir() {
		return Token{}, fmt.Errorf("token file %q is a directory: name the file in it", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, tokenBytesMax+1024))
	if err != nil {
		return Token{}, tokenFileError(path, err)
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

// tokenFileError quotes the path, which may hold characters that control a terminal.
func tokenFileError(path string, err error) error {
	return fmt.Errorf("token file %q: %w", path, withoutPath(err))
}

// withoutPath returns the cause of an error about a file, for callers that quote the path.
func withoutPath(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}
