package verbs

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/internal/require"
)

// TestABI compares the structures and constants of this package with the C header.
func TestABI(t *testing.T) {
	_, err := os.Stat("/usr/include/infiniband/verbs.h")
	require.Have(t, "verbs-headers", err == nil, "the header infiniband/verbs.h is missing (package libibverbs-dev)")
	_, err = exec.LookPath("cc")
	require.Have(t, "verbs-headers", err == nil, "there is no C compiler")
	want := layout()
	for name, value := range constants() {
		want["="+name] = []uintptr{uintptr(value)}
	}
	var lines strings.Builder
	for name := range want {
		kind, field, isField := strings.Cut(name, ".")
		switch {
		case strings.HasPrefix(name, "="):
			fmt.Fprintf(&lines, "VALUE(%s)\n", name[1:])
		case isField:
			fmt.Fprintf(&lines, "FIELD(%s, %s)\n", kind, field)
		default:
			fmt.Fprintf(&lines, "SIZE(%s)\n", kind)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "abi.inc"), []byte(lines.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(dir, "abi")
	if out, err := exec.Command("cc", "-I", dir, "-o", program, "testdata/abi.c").CombinedOutput(); err != nil {
		t.Fatalf("compile testdata/abi.c: %v\n%s", err, out)
	}
	out, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		var got []uintptr
		for _, s := range f[1:] {
			n, err := strconv.ParseUint(s, 10, 64)
			if err != nil {
				t.Fatalf("line %q: %v", line, err)
			}
			got = append(got, uintptr(n))
		}
		seen++
		if !slices.Equal(got, want[f[0]]) {
			t.Errorf("%s: Go has %d, C has %d", f[0], want[f[0]], got)
		}
	}
	if seen != len(want) {
		t.Errorf("the C program printed %d lines, want %d", seen, len(want))
	}
}
