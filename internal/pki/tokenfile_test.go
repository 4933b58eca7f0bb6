package pki

import (
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestReadTokenFile(t *testing.T) {
	token := NewToken().Reveal()
	for _, test := range []struct {
		name, content string
		mode          fs.FileMode
		want          string // in the error; empty: none
	}{
		{"good", token + "\n", 0o600, ""},
		{"read-only", token, 0o400, ""},
		{"all", token, 0o644, "it has mode 0644, so that other users can read or change it: run chmod 600 on it"},
		{"empty", " \n", 0o600, "is empty; 'nexar token' makes a token"},
		{"words", token + " " + token, 0o600, "contains white space"},
		{"long", strings.Repeat("x", 1<<20), 0o600, "more than 2048 bytes"},
	} {
		path := filepath.Join(t.TempDir(), test.name)
		if err := os.WriteFile(path, []byte(test.content), test.mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(path, test.mode); err != nil { // despite the umask
			t.Fatal(err)
		}
		got, err := ReadTokenFile(t.Context(), path)
		isMode := strings.Contains(test.want, "mode")
		switch {
		case isMode && runtime.GOOS == "windows":
		case test.want == "" && (err != nil || got.Reveal() != token):
			t.Errorf("%s: got %q, %v, want the token", test.name, got.Reveal(), err)
		case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || !strings.Contains(err.Error(), test.name)):
			t.Errorf("%s: got error %v, want the path and %q", test.name, err, test.want)
		case err != nil && strings.Contains(err.Error(), token):
			t.Errorf("%s: the error has the token: %v", test.name, err)
		}
	}
	if _, err := ReadTokenFile(t.Context(), filepath.Join(t.TempDir(), "missing")); err == nil || !strings.Contains(err.Error(), "missing") {
		t.Errorf("a missing file: got %v, want an error with its path", err)
	}
	if _, err := ReadTokenFile(t.Context(), t.TempDir()); err == nil {
		t.Error("a directory: no error")
	}
}

// TestTokenFileChanges: a token follows its file, and the one before is accepted for a while.
func TestTokenFileChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "token")
		write := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(tokenCheck)
		}
		a, b := NewToken(), NewToken()
		write(a.Reveal())
		token, err := ReadTokenFile(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		job := token.Of("job")
		check := func(when string, want ...Token) {
			t.Helper()
			var derived []Token
			for _, w := range want {
				derived = append(derived, w.Of("job"))
			}
			reveal := func(list []Token) (texts []string) {
				for _, t := range list {
					texts = append(texts, t.Reveal())
				}
				return texts
			}
			if got := token.Accepted(); !slices.Equal(reveal(got), reveal(want)) {
				t.Errorf("%s: %d tokens are accepted, or others than the %d wanted", when, len(got), len(want))
			}
			offered := make(map[string]bool)
			for range 100 {
				offered[job.Offered().Reveal()] = true
			}
			for _, text := range reveal(derived) {
				if !offered[text] || len(offered) != len(derived) {
					t.Errorf("%s: %d tokens are offered, or others than the %d that are accepted", when, len(offered), len(derived))
				}
			}
			if got := job.Accepted(); !slices.Equal(reveal(got), reveal(derived)) {
				t.Errorf("%s: of the job, %d tokens are accepted, or others than the %d wanted", when, len(got), len(want))
			}
		}
		check("at first", a)
		write(b.Reveal())
		check("after a change", b, a)
		time.Sleep(tokenCheck)
		check("when the file has been read again", b, a)
		write("hello")
		check("with a weak token in the file", b, a)
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		time.Sleep(tokenGrace)
		check("without the file, after the grace", b)
	})
}

// TestWeakTokenFileChanges: a token that was weak at first may be followed by another one.
func TestWeakTokenFileChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "token")
		write := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("hello")
		token, err := ReadTokenFile(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		write("world")
		time.Sleep(tokenCheck)
		if got := token.Accepted(); len(got) != 2 || got[0].Reveal() != "world" || got[1].Reveal() != "hello" {
			t.Errorf("%d tokens are accepted, or others than the two of the file", len(got))
		}
	})
}
