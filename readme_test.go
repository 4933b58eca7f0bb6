package nexar_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestReadmeQuickStart builds the program of the README and runs it as the
// README says, on four ranks.
func TestReadmeQuickStart(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(readme, -1)
	if len(blocks) != 1 {
		t.Fatalf("the README has %d Go programs, not 1", len(blocks))
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "main.go")
	if err := os.WriteFile(source, blocks[0][1], 0o600); err != nil {
		t.Fatal(err)
	}
	hello, nexar := filepath.Join(dir, "hello"), filepath.Join(dir, "nexar")
	for out, pkg := range map[string]string{hello: source, nexar: "./cmd/nexar"} {
		build := exec.CommandContext(t.Context(), "go", "build", "-o", out, pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := build.CombinedOutput(); err != nil {
			t.Fatalf("go build %s: %v\n%s", pkg, err, text)
		}
	}
	text, err := exec.CommandContext(t.Context(), nexar, "run", "-n", "4", "--", hello).CombinedOutput()
	if err != nil {
		t.Fatalf("nexar run: %v\n%s", err, text)
	}
	got := strings.Split(strings.TrimSpace(string(text)), "\n")
	slices.Sort(got)
	var want []string
	for _, line := range regexp.MustCompile(`(?m)^    (\[\d\] rank .*)$`).FindAllSubmatch(readme, -1) {
		want = append(want, string(line[1]))
	}
	slices.Sort(want)
	if !slices.Equal(got, want) || len(want) != 4 {
		t.Errorf("nexar run printed\n%s\nbut the README says\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
