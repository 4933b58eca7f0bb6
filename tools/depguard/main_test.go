package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRules checks imports against the rules of this repository.
func TestRules(t *testing.T) {
	rules, err := os.ReadFile(filepath.Join("..", "..", ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	const nexar = "github.com/nexar-go/nexar"
	for _, test := range []struct{ file, imp, want string }{
		{"internal/plan/a.go", nexar + "/internal/wire", "stands at the bottom"},
		{"internal/plan/a.go", "strings", ""},
		{"internal/plan/a.go", "go/ast", ""},
		{"internal/link/a_test.go", nexar + "/transport/mem", ""},
		{"internal/link/a.go", nexar + "/transport/mem", "it moves frames"},
		{"internal/link/a.go", nexar + "/internal/wire", ""},
		{"internal/link/a.go", nexar + "/internal/require", "it moves frames"},
		{"internal/kernel/a.go", nexar + "/internal/require", "it is for tests"},
		{"transport/quic/a.go", nexar, "a transport provides pipes"},
		{"transport/quic/a.go", nexar + "/transport/tcp", ""},
		{"cmd/nexar/a.go", nexar, ""},
		{"internal/command/a.go", nexar + "/internal/wire", "it is a user of the API"},
		{"a.go", nexar + "/internal/comm", ""},
		{"a.go", nexar + "/internal/rendezvous/raftlog", "the root package is the API"},
		{"transport/quic/a.go", "github.com/quic-go/quic-go", ""},
		{"transport/sim/a_test.go", "github.com/quic-go/quic-go", ""},
		{"transport/sim/a.go", "github.com/quic-go/quic-go/logging", "only transport/quic uses QUIC"},
		{"cmd/nexar/a.go", "github.com/stretchr/testify", "'modules'"},
		{"internal/command/a.go", "github.com/fatih/color", ""},
		{"internal/link/a.go", "go.uber.org/goleak", "it is for tests"},
		{"internal/link/a_test.go", "go.uber.org/goleak", ""},
		{"transport/shm/a.go", "C", "'modules'"},
		{"transport/shm/a_windows.go", "C", "'modules'"},
	} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, ".golangci.yml"), string(rules))
		write(t, filepath.Join(dir, test.file), fmt.Sprintf("package p\n\nimport _ %q\n", test.imp))
		problems, err := check(dir)
		text := strings.Join(problems, "\n")
		if err != nil || test.want == "" && text != "" || test.want != "" && (!strings.Contains(text, test.want) || !strings.HasPrefix(text, test.file+":3:8: ")) {
			t.Errorf("%s imports %s: got problems %q, %v, want %q", test.file, test.imp, problems, err, test.want)
		}
	}
}

func TestWithoutRules(t *testing.T) {
	dir := t.TempDir()
	if _, err := check(dir); err == nil {
		t.Error("a directory without .golangci.yml: no error")
	}
	write(t, filepath.Join(dir, ".golangci.yml"), "version: \"2\"\n")
	if _, err := check(dir); err == nil || !strings.Contains(err.Error(), "no rules") {
		t.Errorf("a file without rules: got error %v, want one about missing rules", err)
	}
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
