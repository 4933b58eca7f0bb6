package pki

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/internal/require"
)

// Files belong to this user or root. Others than the owner have no access to a secret, except that a group of
// this process may read that of root.
func TestAccess(t *testing.T) {
	const root, us, other = 0, 1000, 1001
	const ourGroup, otherGroup = 2000, 2001
	tests := []struct {
		name         string
		owner, group int
		mode         fs.FileMode
		secret       string // wanted in the error; empty: none
		open         string // the same for a file that is not secret
	}{
		{"ours", us, ourGroup, 0o600, "", ""},
		{"ours, read-only", us, ourGroup, 0o400, "", ""},
		{"of root", root, otherGroup, 0o600, "", ""},
		{"of root, for our group", root, ourGroup, 0o440, "", ""},
		{"of root, for our group, written by root", root, ourGroup, 0o640, "", ""},
		{"of root, for another group", root, otherGroup, 0o440, "chmod 600", ""},
		{"of root, written by our group", root, ourGroup, 0o660, "chmod 600", ""},
		{"of root, for all", root, ourGroup, 0o444, "chmod 600", ""},
		{"of root, executable", root, ourGroup, 0o450, "chmod 600", ""},
		{"ours, for our group", us, ourGroup, 0o640, "mode 0640", ""},
		{"ours, for all", us, ourGroup, 0o644, "mode 0644", ""},
		{"ours, written by our group", us, ourGroup, 0o664, "mode 0664", ""},
		{"ours, written by all", us, ourGroup, 0o666, "mode 0666", "mode 0666"},
		{"of another", other, ourGroup, 0o600, "user 1001", "user 1001"},
		{"of another, for all", other, ourGroup, 0o644, "user 1001", "user 1001"},
		{"of another, for our group", other, ourGroup, 0o440, "user 1001", "user 1001"},
	}
	for _, test := range tests {
		a := access{mode: test.mode, owner: test.owner, group: test.group, reader: us, groups: []int{ourGroup, us}}
		for secret, want := range map[bool]string{true: test.secret, false: test.open} {
			err := a.check(secret)
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s, secret %v: error %v, want %q", test.name, secret, err, want)
			}
		}
	}
}

// Tokens, keys, certificates of CAs and state directories of another user are refused.
func TestFilesOfAnotherUser(t *testing.T) {
	require.Root(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	for what, read := range map[string]func() error{
		"token":     func() error { _, err := ReadTokenFile(t.Context(), file); return err },
		"roots":     func() error { _, err := ReadRoots(t.Context(), file); return err },
		"authority": func() error { _, err := loadAuthority(file); return err },
		"CA":        func() error { _, err := ReadIssuer(t.Context(), file, file); return err },
		"state":     func() error { return CheckState(dir) },
	} {
		if err := os.WriteFile(file, []byte(NewToken().Reveal()), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(file, 12345, 12345); err != nil {
			t.Fatal(err)
		}
		if err := read(); err == nil || !strings.Contains(err.Error(), "belongs to user 12345") {
			t.Errorf("%s of another user: error %v, want one that names the owner", what, err)
		}
		if err := os.Chown(file, 0, 0); err != nil {
			t.Fatal(err)
		}
		if err := read(); err != nil && strings.Contains(err.Error(), "belongs to") {
			t.Errorf("%s of root: %v", what, err)
		}
	}
	if err := os.Chown(dir, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	if err := CheckState(dir); err == nil || !strings.Contains(err.Error(), "belongs to user 12345") {
		t.Errorf("state directory of another user: error %v", err)
	}
	if err := CheckState(filepath.Join(dir, "missing")); err != nil {
		t.Errorf("a state directory that does not exist: %v", err)
	}
}
