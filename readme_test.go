//go:build !race

// This test builds programs and runs them in processes without the race detector.

package nexar_test

import (
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestReadmeQuickStart follows the README: it builds the command, runs four processes of the
// program, and compares their output.
func TestReadmeQuickStart(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(package main\n.*?)```").FindAllSubmatch(readme, -1)
	if len(blocks) != 1 {
		t.Fatalf("the README has %d Go programs, want 1", len(blocks))
	}
	const run = "./nexar run -n 4 -- go run ./hello"
	for _, line := range []string{"Save this as `hello/main.go`", "```sh\ngo build ./cmd/nexar\n" + run + "\n```"} {
		if !strings.Contains(string(readme), line) {
			t.Errorf("the README does not contain %q; adapt this test to the new commands", line)
		}
	}
	dir := t.TempDir()
	command := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", dir, "./cmd/nexar")
	if text, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", command, err, text)
	}
	command = exec.CommandContext(t.Context(), filepath.Join(dir, "nexar"), strings.Fields(run)[1:]...)
	// A busy machine would be slow enough for warnings that the world is still forming.
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "NEXAR_LOG=off", "GOFLAGS="+saved(t, dir, blocks[0][1]))
	text, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("nexar run: %v\n%s", err, text)
	}
	got := strings.Split(strings.TrimSpace(string(text)), "\n")
	slices.Sort(got)
	var want []string
	for _, line := range regexp.MustCompile(`(?m)^    (\[\d\] rank \d of \d: .*)$`).FindAllSubmatch(readme, -1) {
		want = append(want, string(line[1]))
	}
	slices.Sort(want)
	if !slices.Equal(got, want) || len(want) != 4 {
		t.Errorf("nexar run printed\n%s\nthe README has\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// saved returns flags for the go command with which hello/main.go of this module is the program.
func saved(t *testing.T, dir string, program []byte) (flags string) {
	t.Helper()
	here, err := filepath.Abs("hello/main.go")
	if err != nil {
		t.Fatal(err)
	}
	source, overlay := filepath.Join(dir, "main.go"), filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {here: source}})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(source, program, 0o600), os.WriteFile(overlay, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(os.Getenv("GOFLAGS") + " -overlay=" + overlay)
}
