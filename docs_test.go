//go:build !race

package nexar_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// snippetMark precedes the Go code of a document. "<!-- test: x int -->" marks statements, which
// become the body of a function with these parameters and an error result. "<!-- test -->" marks
// declarations.
var snippetMark = regexp.MustCompile("(?s)(?:<!-- test(:? ?)([^\n]*?) ?-->\n)?```go\n(.*?)```")

// snippetHeader contains the imports for all snippets of a document.
const snippetHeader = `package snippets

import (
	"cmp"
	"context"
	"errors"
	"log"
	"net"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/compress"
	"github.com/nexar-go/nexar/consensus/raft"
	"github.com/nexar-go/nexar/nexartest"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/stream"
	"github.com/nexar-go/nexar/transport/transporttest"
)

// Use each import.
var (
	_ = cmp.Or[string]
	_ context.Context
	_ = errors.New
	_ = log.Println
	_ net.Conn
	_ = filepath.Join
	_ testing.TB
	_ = synctest.Test
	_ time.Duration
	_ nexar.Op
	_ compress.Compressor
	_ = raft.Open
	_ = nexartest.Run
	_ transport.Conn
	_ = stream.New
	_ transporttest.Cluster
)
`

// TestSnippets compiles the Go code of the README and the guides, and runs the tests in it.
func TestSnippets(t *testing.T) {
	documents, err := filepath.Glob("docs/guide/*.md")
	if err != nil || len(documents) == 0 {
		t.Fatalf("guides: %v, error %v", documents, err)
	}
	dir := t.TempDir()
	replace := make(map[string]string)
	for _, document := range append(documents, "README.md") {
		source := snippets(t, document)
		if source == "" {
			continue
		}
		name := strings.NewReplacer("/", "_", "-", "_").Replace(strings.TrimSuffix(document, ".md")) + "_test.go"
		here, err := filepath.Abs(filepath.Join("docs", "snippets", name))
		if err != nil {
			t.Fatal(err)
		}
		replace[here] = filepath.Join(dir, name)
		if err := os.WriteFile(replace[here], []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	overlay := filepath.Join(dir, "overlay.json")
	text, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, text, 0o600); err != nil {
		t.Fatal(err)
	}
	// The directory docs/snippets exists in the overlay only, so vet and tests cannot run there.
	program := filepath.Join(dir, "snippets.exe") // Windows needs the suffix.
	for _, command := range []*exec.Cmd{
		exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay="+overlay, "-o", program, "./docs/snippets"),
		exec.CommandContext(t.Context(), program),
	} {
		if out, err := command.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", command, err, out)
		}
	}
}

// snippets returns the source of a test file with the Go code of a document, or "" if it has none.
// Line directives refer the compiler's messages to the document.
func snippets(t *testing.T, document string) string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	path, err := filepath.Abs(document)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	for _, m := range snippetMark.FindAllSubmatchIndex(text, -1) {
		code := string(text[m[6]:m[7]])
		line := fmt.Sprintf("//line %s:%d\n", path, 1+strings.Count(string(text[:m[6]]), "\n"))
		switch {
		case strings.HasPrefix(code, "package main\n"): // run by TestReadmeQuickStart
		case m[2] < 0:
			t.Errorf("%s:%d: Go code needs a line <!-- test --> or <!-- test: PARAMETERS --> before it", document, strings.Count(string(text[:m[6]]), "\n"))
		case m[4] == m[5]:
			b.WriteString(line + code)
		default:
			fmt.Fprintf(&b, "func _(%s) (_ error) {\n%s%s\treturn\n}\n\n", text[m[4]:m[5]], line, code)
		}
	}
	if b.Len() == 0 {
		return ""
	}
	return snippetHeader + b.String()
}
