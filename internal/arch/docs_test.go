package arch

import (
	"go/ast"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// documents returns the Markdown files of the repository, relative to its root.
func documents(t *testing.T) []string {
	t.Helper()
	return sourceFiles(t, rootDir(t), ".md")
}

// The targets of links to other documents and to code exist.
func TestLinks(t *testing.T) {
	root := rootDir(t)
	link := regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)
	code := regexp.MustCompile("(?s)\n```.*?\n```") // in Go, f[T](x) looks like a link
	found := 0
	for _, name := range documents(t) {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			found++
			target := path.Join(path.Dir(name), m[1])
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(target))); err != nil {
				t.Errorf("%s: link to %s: no such file", name, m[1])
			}
		}
	}
	if found == 0 {
		t.Error("found no links")
	}
}

// resultsMax is the maximum of the bytes in docs/results, which has summaries, drawings and compressed measurements.
const resultsMax = 400 << 10

func TestResultsAreSmall(t *testing.T) {
	total := int64(0)
	err := filepath.WalkDir(filepath.Join(rootDir(t), "docs", "results"), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if total == 0 || total > resultsMax {
		t.Errorf("docs/results has %d bytes, want at most %d: compress measurements, or keep the summary and the command that measures again", total, resultsMax)
	}
}

// decisionsMax is the maximum of decisions that hold. A new one replaces or extends an older one.
const decisionsMax = 50

// docs/adr/README.md has the title of every decision.
func TestDecisionsAreIndexed(t *testing.T) {
	dir := filepath.Join(rootDir(t), "docs", "adr")
	index, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "0*.md"))
	if err != nil || len(files) == 0 || len(files) > decisionsMax {
		t.Errorf("docs/adr has %d decisions, %v, want at most %d: merge one into the decision that it extends", len(files), err, decisionsMax)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut(string(text), "\n")
		number, title, _ := strings.Cut(strings.TrimPrefix(head, "# "), ". ")
		if row := "| " + number + " | [" + title + "](" + filepath.Base(file) + ") |"; !strings.Contains(string(index), row) {
			t.Errorf("docs/adr/README.md lacks the row %q", row)
		}
	}
}

// The tests that the package comment of test/faults names exist, and those that docs/internals.md names without a package.
func TestNamedTestsExist(t *testing.T) {
	have, names := make(map[string]bool), make(map[string]bool) // "internal/plan.TestCheck", "TestCheck"
	comment := ""
	for _, f := range load(t).files {
		if f.path == "test/faults/doc.go" {
			comment = f.ast.Doc.Text()
		}
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.test && fn.Recv == nil {
				have[f.dir+"."+fn.Name.Name], names[fn.Name.Name] = true, true
			}
		}
	}
	internals, err := os.ReadFile(filepath.Join(rootDir(t), "docs", "internals.md"))
	if err != nil {
		t.Fatal(err)
	}
	for file, c := range map[string]struct {
		text, pattern string
		exist         map[string]bool
		least         int
	}{
		"test/faults/doc.go": {comment, `[a-z/]+\.Test[A-Za-z0-9]+`, have, 20},
		"docs/internals.md":  {string(internals), `\b(Test|Benchmark)[A-Z][A-Za-z0-9]+`, names, 6},
	} {
		named := regexp.MustCompile(c.pattern).FindAllString(c.text, -1)
		if len(named) < c.least {
			t.Errorf("%s names %d tests, want at least %d: has the format changed?", file, len(named), c.least)
		}
		for _, name := range named {
			if !c.exist[name] {
				t.Errorf("%s names %s: no such test", file, name)
			}
		}
	}
}
