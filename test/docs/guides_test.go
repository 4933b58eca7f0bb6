//go:build !race && unix

package docs

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/testhost"
	"github.com/nexar-go/nexar/internal/testlog"
	"github.com/nexar-go/nexar/internal/testpeer"
)

var (
	// shellMark precedes the shell commands of a document: "<!-- run -->", "<!-- run: N in background -->", "<!-- run: exit
	// status N -->" or "<!-- not run: REASON -->". A block of text after "<!-- printed -->" has lines that the commands print.
	shellMark = regexp.MustCompile("(?s)(?:<!-- (run|run: (\\d+) in background|run: exit status (\\d+)|not run: [^\n]+) -->\n)?```sh\n(.*?)```" +
		"(?:\n\n<!-- printed -->\n```text\n(.*?)```)?")
	// unmarked is a command in an indented block, which no test would see.
	unmarked = regexp.MustCompile(`(?m)^    (\./|export |go |nexar |NEXAR_|kill ).*$`)
	// unmatched is a block of printed lines that follows no commands.
	unmatched = regexp.MustCompile("[^`\n]\n+<!-- printed -->")
)

// TestGuideCommands runs the shell commands of the README and the guides, in the order of each document,
// with the address of the seed on the loopback interface, any free port for pages, and a token in place of an ellipsis. Commands in
// the background must have succeeded at the end of the document. Commands print the lines that the document promises.
func TestGuideCommands(t *testing.T) {
	t.Parallel()
	documents, err := filepath.Glob("docs/guide/*.md")
	if err != nil || len(documents) == 0 {
		t.Fatalf("guides: %v, error %v", documents, err)
	}
	dir := workplace(t)
	for _, document := range append(documents, "README.md") {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		if line := unmarked.Find(text); line != nil {
			t.Errorf("%s: %q: put commands in a block ```sh after <!-- run --> or <!-- not run: REASON -->", document, line)
		}
		if line := unmatched.Find(text); line != nil {
			t.Errorf("%s: a block after <!-- printed --> must follow one of commands", document)
		}
		t.Run(filepath.Base(document), func(t *testing.T) { runCommands(t, dir, string(text)) })
	}
}

// goCommand is a command go for the guides: it builds packages of this module into the working directory,
// and changes the module of the working directory. It uses only modules in the cache: go mod tidy -e ignores
// missing modules, which tests of dependencies import, and the build after it fails if any other is missing.
const goCommand = `#!/bin/sh
case "$1" in
build) shift; exec %[1]q -C %[2]q build -o "$PWD/" "$@";;
mod)
	export GOPROXY=off GOSUMDB=off
	if [ "$2" = tidy ]; then %[1]q mod tidy -e && exec %[1]q build -o /dev/null .; fi
	exec %[1]q "$@";;
*) echo "go $*: the guides run go build and go mod alone" >&2; exit 2;;
esac
`

// ownModule is the module of a user, which imports this one.
var ownModule = map[string]string{
	"go.mod":  "module example.com/own\n\ngo 1.26\n",
	"main.go": "package main\n\nimport _ \"github.com/nexar-go/nexar\"\n\nfunc main() {}\n",
}

// workplace returns a directory with a module of a user, its programs ./train, ./ranks, ./program and ./your-program, its CA
// in ca.pem and ca-key.pem, the command ./nexar, and the commands nexar and go in bin.
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
	if err := os.WriteFile(filepath.Join(bin, "go"), fmt.Appendf(nil, goCommand, goPath, here), 0o700); err != nil {
		t.Fatal(err)
	}
	for file, program := range map[string]string{filepath.Join(dir, "train"): "allreduce", filepath.Join(dir, "ranks"): "ranks", filepath.Join(bin, "nexar"): "nexar"} {
		if err := os.Symlink(filepath.Join(programs.Dir(t), program), file); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"your-program": "train", "program": "train", "nexar": filepath.Join("bin", "nexar")} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	cert, key := testpeer.NewUserCA(t, "the reader", nil)
	for name, path := range map[string]string{"ca.pem": cert, "ca-key.pem": key} {
		if err := os.Rename(path, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range ownModule {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func runCommands(t *testing.T, dir, text string) {
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	seed, token := testhost.FreePort(t), nexar.NewToken()
	var running []*script
	for _, m := range shellMark.FindAllStringSubmatch(text, -1) {
		local := strings.NewReplacer("10.0.0.1:7946", seed, "10.0.0.1", seed, "export NEXAR_CLUSTER_TOKEN=$(nexar token)", "export NEXAR_CLUSTER_TOKEN="+token, "=…", "="+token, "/path/to/clone", here, "--http 8080", "--http 0", "--metrics 9464", "--metrics 0", "127.0.0.1:8080", "127.0.0.1:…")
		mark, count, status, text := m[1], m[2], m[3], local.Replace(m[4])
		printed := strings.Split(strings.TrimSpace(local.Replace(m[5])), "\n")
		switch {
		case mark == "":
			t.Errorf("a line <!-- run --> or <!-- not run: REASON --> must precede\n%s", m[4])
		case strings.HasPrefix(mark, "not run: "):
			if m[5] != "" {
				t.Errorf("these commands are not run, so what they print is not known:\n%s", m[4])
			}
		case count == "":
			s := start(t, dir, text, printed)
			s.status, _ = strconv.Atoi(status)
			if err := s.wait(); err != nil {
				t.Error(err)
			}
		default:
			n, _ := strconv.Atoi(count) // The mark has digits.
			for range n {
				running = append(running, start(t, dir, text, printed))
			}
			if strings.Contains(text, "nexar seed") {
				running[len(running)-1].output(t, firstLine)
			}
			if strings.Contains(text, "nexar seed") && !strings.Contains(text, "NEXAR_CLUSTER_TOKEN") {
				token = running[len(running)-1].output(t, printedToken)
			}
		}
	}
	for _, s := range running {
		if err := s.wait(); err != nil {
			t.Error(err)
		}
	}
}

// A script is a running block of shell commands.
type script struct {
	text    string
	printed []string // lines that the commands print
	status  int      // with which they end
	command *exec.Cmd
	out     testlog.Buffer
	ended   chan struct{} // closed when err is set
	err     error
}

// start starts the commands of a block.
func start(t *testing.T, dir, text string, printed []string) *script {
	t.Helper()
	s := &script{text: text, printed: printed, command: exec.CommandContext(t.Context(), "sh", "-e", "-c", text), ended: make(chan struct{})}
	s.command.Dir, s.command.Stdout, s.command.Stderr = dir, &s.out, &s.out
	s.command.Env = append(os.Environ(), "NEXAR_LISTEN=127.0.0.1:0", "PATH="+filepath.Join(dir, "bin")+string(filepath.ListSeparator)+os.Getenv("PATH"))
	if err := s.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.ended)
		s.err = s.command.Wait()
	}()
	return s
}

// wait returns when the commands have ended.
func (s *script) wait() error {
	<-s.ended
	exit, failed := errors.AsType[*exec.ExitError](s.err)
	if s.err != nil && !failed || failed && exit.ExitCode() != s.status || s.err == nil && s.status != 0 {
		return fmt.Errorf("%s\nended with %v, want exit status %d\n%s", s.text, s.err, s.status, s.out.String())
	}
	for _, line := range s.printed {
		if !prints(s.out.String(), line) {
			return fmt.Errorf("%s\nprinted\n%s\nwant %q", s.text, s.out.String(), line)
		}
	}
	return nil
}

// prints reports whether a text contains a line, in which "…" is any text.
func prints(text, line string) bool {
	parts := strings.Split(strings.TrimSpace(line), "…")
	for i, part := range parts {
		parts[i] = regexp.QuoteMeta(part)
	}
	return regexp.MustCompile(strings.Join(parts, ".*")).MatchString(text)
}

// printedToken is the line of a seed that has made the token of the cluster.
var printedToken = regexp.MustCompile(`export NEXAR_CLUSTER_TOKEN=(\S+)\n`)

// firstLine is the first line of a seed, which it prints when it listens.
var firstLine = regexp.MustCompile(`(.*)\n`)

// output waits until the output of a command matches pattern, and returns the first submatch.
func (s *script) output(t *testing.T, pattern *regexp.Regexp) string {
	t.Helper()
	for {
		if m := pattern.FindStringSubmatch(s.out.String()); m != nil {
			return m[1]
		}
		select {
		case <-s.ended:
			t.Fatalf("the commands have ended without output that matches %v: %v", pattern, s.wait())
		case <-time.After(10 * time.Millisecond):
		}
	}
}
