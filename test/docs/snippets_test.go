//go:build !race

package docs

import (
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
	"net/http"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/checkpoint"
	"github.com/nexar-go/nexar/compress"
	"github.com/nexar-go/nexar/consensus/raft"
	"github.com/nexar-go/nexar/ddp"
	"github.com/nexar-go/nexar/metrics/page"
	"github.com/nexar-go/nexar/nexartest"
	"github.com/nexar-go/nexar/objects"
	"github.com/nexar-go/nexar/otel"
	"github.com/nexar-go/nexar/transport"
	"github.com/nexar-go/nexar/transport/transporttest"
)

// Use each import.
var (
	_ = cmp.Or[string]
	_ context.Context
	_ = errors.New
	_ = log.Println
	_ net.Conn
	_ http.Handler
	_ = filepath.Join
	_ testing.TB
	_ = synctest.Test
	_ time.Duration
	_ nexar.Op
	_ checkpoint.Item
	_ compress.Compressor
	_ = raft.Open
	_ ddp.Config
	_ = page.New
	_ = objects.Format[any]{}
	_ = otel.New
	_ = nexartest.Run
	_ transport.Conn
	_ transporttest.Cluster
)
`

// TestSnippets runs the tests in the Go code of the README and the guides, all of which buildPrograms has compiled.
func TestSnippets(t *testing.T) {
	command := exec.CommandContext(t.Context(), filepath.Join(programs.Dir(t), "snippets.exe"))
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
}

// addSnippets passes the sources of the Go code of the README and the guides to add.
func addSnippets(add func(path, source string) error) error {
	documents, err := filepath.Glob("docs/guide/*.md")
	if err != nil || len(documents) == 0 {
		return fmt.Errorf("guides: %v, error %w", documents, err)
	}
	for _, document := range append(documents, "README.md") {
		source, err := snippets(document)
		if err == nil && source != "" {
			name := strings.NewReplacer("/", "_", "-", "_").Replace(strings.TrimSuffix(filepath.ToSlash(document), ".md")) + "_test.go"
			err = add("docs/snippets/"+name, source)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// snippets returns the source of a test file with the Go code of a document, or "" if it has none.
// Line directives refer the compiler's messages to the document.
func snippets(document string) (string, error) {
	text, err := os.ReadFile(document)
	if err != nil {
		return "", err
	}
	path, err := filepath.Abs(document)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, m := range snippetMark.FindAllSubmatchIndex(text, -1) {
		code := string(text[m[6]:m[7]])
		line := fmt.Sprintf("//line %s:%d\n", path, 1+strings.Count(string(text[:m[6]]), "\n"))
		switch {
		case strings.HasPrefix(code, "package main\n"): // run by TestReadmeQuickStart
		case m[2] < 0:
			return "", fmt.Errorf("%s:%d: Go code needs a line <!-- test --> or <!-- test: PARAMETERS --> before it", document, strings.Count(string(text[:m[6]]), "\n"))
		case m[4] == m[5]:
			b.WriteString(line + code)
		default:
			fmt.Fprintf(&b, "func _(%s) (_ error) {\n%s%s\treturn\n}\n\n", text[m[4]:m[5]], line, code)
		}
	}
	if b.Len() == 0 {
		return "", nil
	}
	return snippetHeader + b.String(), nil
}
