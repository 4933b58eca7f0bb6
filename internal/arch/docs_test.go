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

// documents are the Markdown files of the repository.
func documents(t *testing.T) (names []string) {
	t.Helper()
	root := rootDir(t)
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && p != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case strings.HasSuffix(p, ".md"):
			rel, err := filepath.Rel(root, p)
			names = append(names, filepath.ToSlash(rel))
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// Links from one document to another, or to code, lead somewhere.
func TestLinks(t *testing.T) {
	root := rootDir(t)
	link := regexp.MustCompile(`\]\(([^)#\s]+)[^)]*\)`)
	found := 0
	for _, name := range documents(t) {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(m[1], "://") || strings.HasPrefix(m[1], "mailto:") {
				continue
			}
			found++
			target := path.Join(path.Dir(name), m[1])
			if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(target))); err != nil {
				t.Errorf("%s: the link to %s leads nowhere", name, m[1])
			}
		}
	}
	if found == 0 {
		t.Error("no links at all were found")
	}
}

// docs/internals.md describes every package.
func TestArchitectureIsComplete(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(rootDir(t), "docs", "internals.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range load(t).dirs() {
		if dir == "." || covers("examples/...", dir) || covers("cmd/nexar/...", dir) && dir != "cmd/nexar" {
			continue
		}
		if !strings.Contains(string(text), "`"+dir+"`") {
			t.Errorf("docs/internals.md does not describe `%s`", dir)
		}
	}
}

// The tests that docs/internals.md names exist.
func TestNamedTestsExist(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(rootDir(t), "docs", "internals.md"))
	if err != nil {
		t.Fatal(err)
	}
	have := make(map[string]bool) // "internal/plan TestCheck"
	for _, f := range load(t).files {
		for _, d := range f.ast.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && f.test && fn.Recv == nil {
				have[f.dir+" "+fn.Name.Name] = true
			}
		}
	}
	named := regexp.MustCompile("`(Test[A-Za-z0-9]+)` in `([^`]+)`").FindAllStringSubmatch(string(text), -1)
	if len(named) < 20 {
		t.Errorf("%d tests are named", len(named))
	}
	for _, m := range named {
		if !have[m[2]+" "+m[1]] {
			t.Errorf("docs/internals.md names %s of %s, which does not exist", m[1], m[2])
		}
	}
}
