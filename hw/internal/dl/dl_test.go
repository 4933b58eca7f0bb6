package dl

import (
	"strings"
	"testing"
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
	for _, name := range []string{"cannot open libnone.so.1", "libnone.so:"} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("error %q does not contain %q", err, name)
		}
	}
}
