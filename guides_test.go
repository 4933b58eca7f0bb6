//go:build !race && unix

package nexar_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
)

var (
	// shellMark precedes the shell commands of a document: "<!-- run -->", "<!-- run: N in background -->"
	// or "<!-- not run: REASON -->".
	shellMark = regexp.MustCompile("(?s)(?:<!-- (run|run: (\\d+) in background|not run: [^\n]+) -->\n)?```sh\n(.*?)```")
	// unmarked is a command in an indented block, which no test would see.
	unmarked = regexp.MustCompile(`(?m)^    (\./|export |go |nexar |NEXAR_|kill ).*$`)
)

// TestGuideCommands runs the shell commands of the guides, in the order of each document, with the
// address of the seed on the loopback interface and a token in place of an ellipsis. Commands in the
// background must have succeeded at the end of the document.
func TestGuideCommands(t *testing.T) {
	t.Parallel()
	documents, err := filepath.Glob("docs/guide/*.md")
	if err != nil || len(documents) == 0 {
		t.Fatalf("guides: %v, error %v", documents, err)
	}
	dir := workplace(t)
	for _, document := range documents {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		if line := unmarked.Find(text); line != nil {
			t.Errorf("%s: %q: put commands in a block ```sh after <!-- run --> or <!-- not run: REASON -->", document, line)
		}
		t.Run(filepath.Base(document), func(t *testing.T) { runCommands(t, dir, string(text)) })
	}
}

// goBuild is a command go for the guides: it builds packages of this module into the working directory.
const goBuild = `#!/bin/sh
[ "$1" = build ] || { echo "go $*: the guides run go build alone" >&2; exit 2; }
shift
exec %q -C %q build -o "$PWD/" "$@"
`

// workplace returns a directory with the program ./train, and the commands nexar and go in bin.
func workplace(t *testing.T) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	goPath, err := exec.LookPath("go")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, "bin")
	if err := os.Mkdir(bin, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "go"), fmt.Appendf(nil, goBuild, goPath, here), 0o700); err != nil {
		t.Fatal(err)
	}
	for file, path := range map[string]string{filepath.Join(dir, "train"): "./examples/allreduce", filepath.Join(bin, "nexar"): "./cmd/nexar"} {
		build := exec.CommandContext(t.Context(), "go", "build", "-o", file, path)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", build, err, out)
		}
	}
	return dir
}

func runCommands(t *testing.T, dir, text string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	seed, token := l.Addr().String(), nexar.NewToken()
	l.Close()
	local := strings.NewReplacer("10.0.0.1:7946", seed, "10.0.0.1", seed, "$(nexar token)", token, "=…", "="+token)
	var running []func() error
	for _, m := range shellMark.FindAllStringSubmatch(text, -1) {
		mark, count, script := m[1], m[2], local.Replace(m[3])
		switch {
		case mark == "":
			t.Errorf("a line <!-- run --> or <!-- not run: REASON --> must precede\n%s", m[3])
		case strings.HasPrefix(mark, "not run: "):
		case count == "":
			if err := shell(t, dir, script)(); err != nil {
				t.Error(err)
			}
		default:
			n, _ := strconv.Atoi(count) // The mark has digits.
			for range n {
				running = append(running, shell(t, dir, script))
			}
		}
	}
	for _, wait := range running {
		if err := wait(); err != nil {
			t.Error(err)
		}
	}
}

// shell starts commands and returns a function that waits until they have ended.
func shell(t *testing.T, dir, script string) (wait func() error) {
	t.Helper()
	var out bytes.Buffer
	command := exec.CommandContext(t.Context(), "sh", "-e", "-c", script)
	command.Dir, command.Stdout, command.Stderr = dir, &out, &out
	command.Env = append(os.Environ(), "CGO_ENABLED=0", "NEXAR_LISTEN=127.0.0.1:0", "NEXAR_LOG=off", "PATH="+filepath.Join(dir, "bin")+string(filepath.ListSeparator)+os.Getenv("PATH"))
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	return func() error {
		if err := command.Wait(); err != nil {
			return fmt.Errorf("%s\n%w\n%s", script, err, out.Bytes())
		}
		return nil
	}
}
