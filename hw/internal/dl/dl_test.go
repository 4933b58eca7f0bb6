package dl

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/nexar-go/nexar/internal/require"
)

func TestFuncOfLibC(t *testing.T) {
	l, err := Open("libc-that-does-not-exist.so.9", "libc.so.6")
	if err != nil {
		t.Fatal(err)
	}
	var length func(string) int
	if err := l.Func(&length, "strlen"); err != nil {
		t.Fatal(err)
	}
	if n := length("seven!!"); n != 7 {
		t.Errorf("strlen returned %d, want 7", n)
	}
	if err := l.Func(&length, "no_such_function"); err == nil || !strings.Contains(err.Error(), "libc.so.6 has no no_such_function") {
		t.Errorf("error of a missing symbol: %v", err)
	}
}

func TestOpenNamesLibraries(t *testing.T) {
	_, err := Open("libnone.so.1", "libnone.so")
	if err == nil {
		t.Fatal("a missing library was opened")
	}
	for _, name := range []string{"cannot open libnone.so.1: ", "; libnone.so: "} {
		if strings.Count(err.Error(), name) != 1 {
			t.Errorf("error %q does not contain %q once", err, name)
		}
	}
	if n := strings.Count(err.Error(), "libnone.so"); n != 2 {
		t.Errorf("error %q contains a name %d times, want each of 2 once", err, n)
	}
}

// TestReasonsOfConcurrentCalls: each error has the reason of its own call, while other goroutines open libraries and look up symbols.
func TestReasonsOfConcurrentCalls(t *testing.T) {
	c, err := Open("libc.so.6")
	if err != nil {
		t.Fatal(err)
	}
	_, err = Open("libnone.so")
	_, reason, _ := strings.Cut(err.Error(), "libnone.so: ")
	if reason == "" {
		t.Fatalf("error %q has no reason", err)
	}
	var callers sync.WaitGroup
	for i := range 16 {
		callers.Go(func() {
			library, symbol := fmt.Sprintf("libnone-%d.so", i), fmt.Sprintf("no_function_%d", i)
			for range 200 {
				if _, err := Open(library); err.Error() != "cannot open "+library+": "+reason {
					t.Errorf("error %q, want the reason %q for %s", err, reason, library)
					return
				}
				if _, err := c.Symbol(symbol); strings.Count(err.Error(), symbol) != 2 {
					t.Errorf("error %q, want it with a reason that names %s", err, symbol)
					return
				}
			}
		})
	}
	callers.Wait()
}

// TestScope: only a library of OpenGlobal offers its symbols to libraries that do not name it.
func TestScope(t *testing.T) {
	_, err := exec.LookPath("cc")
	require.Have(t, "cc", err == nil, "there is no C compiler")
	dir := t.TempDir()
	for name, text := range map[string]string{
		"base": "int nexar_test_base(void) { return 7; }", "user": "int nexar_test_base(void); int nexar_test_user(void) { return nexar_test_base(); }",
	} {
		source := filepath.Join(dir, name+".c")
		if err := os.WriteFile(source, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if text, err := exec.Command("cc", "-shared", "-fPIC", "-o", filepath.Join(dir, name+".so"), source).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	}
	base, user := filepath.Join(dir, "base.so"), filepath.Join(dir, "user.so")
	if _, err := Open(base); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(user); err == nil || !strings.Contains(err.Error(), "nexar_test_base") {
		t.Fatalf("a library that needs another one after Open: %v, want an error that names the symbol", err)
	}
	if _, err := OpenGlobal(base); err != nil {
		t.Fatal(err)
	}
	l, err := Open(user)
	if err != nil {
		t.Fatal(err)
	}
	var f func() int
	if err := l.Func(&f, "nexar_test_user"); err != nil || f() != 7 {
		t.Errorf("a function of a library that needs another one: %v", err)
	}
}
