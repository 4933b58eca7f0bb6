//go:build !race

// This test runs programs in processes without the race detector.

package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestReadmeQuickStart follows the README: it runs four processes of the program by the command, and compares their output.
func TestReadmeQuickStart(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	const run = "./nexar run -n 4 -- ./hello/hello"
	for _, line := range []string{"Save this as `hello/main.go`", "```sh\ngo build ./cmd/nexar\ngo build -o hello/ ./hello\n" + run + "\n```"} {
		if !strings.Contains(string(readme), line) {
			t.Errorf("the README does not contain %q; adapt this test to the new commands", line)
		}
	}
	dir := programs.Dir(t)
	command := exec.CommandContext(t.Context(), filepath.Join(dir, "nexar"), strings.Fields(strings.Replace(run, "./hello/hello", filepath.Join(dir, "hello"), 1))[1:]...)
	// A busy machine would be slow enough for warnings that the world is still forming.
	command.Env = append(os.Environ(), "NEXAR_LOG=off")
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
