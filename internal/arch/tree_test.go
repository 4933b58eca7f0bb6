package arch

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/nexar-go/nexar/internal/require"
)

// module is the import path of the repository.
const module = "github.com/nexar-go/nexar"

// A tree has the parsed Go files of the repository.
type tree struct {
	fset  *token.FileSet
	files []*file
}

// A file is a parsed Go file.
type file struct {
	path      string // "internal/plan/plan.go"
	dir       string // "internal/plan"; "." is the root package
	test      bool
	generated bool
	lines     int
	ast       *ast.File
	imports   []string
}

// load returns the parsed repository. Each test gets a tree of its own with the same files, which no test changes.
func load(t *testing.T) *tree {
	t.Helper()
	root := rootDir(t)
	parsed.Do(func() {
		repository = &tree{fset: token.NewFileSet()}
		for _, name := range sourceFiles(t, root, ".go") {
			src, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
			if err == nil {
				err = repository.add(name, src)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	if len(repository.files) < 500 {
		t.Fatalf("found %d Go files below %s, want at least 500: checks of a part of the repository prove nothing", len(repository.files), root)
	}
	return &tree{fset: repository.fset, files: slices.Clone(repository.files)}
}

// repository is parsed once, which takes half a second.
var (
	parsed     sync.Once
	repository *tree
)

// sourceFiles returns the files of the repository at root with this extension, relative to root: those that git tracks, so
// that programs which a user has written in a clone do not matter. Without git or its directory it returns all files. It
// leaves out testdata and what begins with a dot.
func sourceFiles(t *testing.T, root, extension string) (names []string) {
	t.Helper()
	list := exec.Command("git", "-C", root, "ls-files", "-z")
	if tracked, err := list.Output(); err == nil && len(tracked) > 0 {
		names = strings.Split(strings.TrimSuffix(string(tracked), "\x00"), "\x00")
	} else if err := fs.WalkDir(os.DirFS(root), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(names, func(name string) bool {
		hidden := strings.HasPrefix(name, ".") || strings.Contains(name, "/.") || slices.Contains(strings.Split(name, "/"), "testdata")
		_, err := os.Stat(filepath.Join(root, filepath.FromSlash(name)))
		return hidden || !strings.HasSuffix(name, extension) || errors.Is(err, fs.ErrNotExist) // removed, and still tracked
	})
}

// TestSourceFiles: a file that git does not track is left out, and one that it tracks is not.
func TestSourceFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a.go", "b.go", "c.md", "testdata/d.go", ".hidden/e.go"} {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := sourceFiles(t, dir, ".go"), []string{"a.go", "b.go"}; !slices.Equal(got, want) {
		t.Errorf("without git: %q, want %q", got, want)
	}
	_, err := exec.LookPath("git")
	require.Have(t, "git", err == nil, "git is not installed")
	for _, args := range [][]string{{"init", "-q"}, {"add", "a.go", "c.md", "testdata/d.go"}} {
		if out, err := exec.Command("git", append([]string{"-C", dir}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %q: %v\n%s", args, err, out)
		}
	}
	if got, want := sourceFiles(t, dir, ".go"), []string{"a.go"}; !slices.Equal(got, want) {
		t.Errorf("with git: %q, want %q", got, want)
	}
}

// parse returns a tree of sources by path, for tests of the checks.
func parse(t *testing.T, sources map[string]string) *tree {
	t.Helper()
	tr := &tree{fset: token.NewFileSet()}
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		if err := tr.add(name, []byte(sources[name])); err != nil {
			t.Fatal(err)
		}
	}
	return tr
}

func (tr *tree) add(name string, src []byte) error {
	a, err := parser.ParseFile(tr.fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	f := &file{
		path: name, dir: path.Dir(name), test: strings.HasSuffix(name, "_test.go"),
		generated: ast.IsGenerated(a), lines: bytes.Count(src, []byte("\n")), ast: a,
	}
	for _, spec := range a.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		f.imports = append(f.imports, p)
	}
	tr.files = append(tr.files, f)
	return nil
}

// rootDir returns the directory of go.mod.
func rootDir(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			t.Fatal("no go.mod above the directory of the test")
		}
		dir = parent
	}
}

// dirs returns the directories of all packages in order.
func (tr *tree) dirs() []string {
	var dirs []string
	for _, f := range tr.files {
		dirs = append(dirs, f.dir)
	}
	slices.Sort(dirs)
	return slices.Compact(dirs)
}

// in returns the files of a package.
func (tr *tree) in(dir string) []*file {
	var files []*file
	for _, f := range tr.files {
		if f.dir == dir {
			files = append(files, f)
		}
	}
	return files
}

// at returns the position of a node: "internal/plan/plan.go:12".
func (tr *tree) at(n ast.Node) string {
	p := tr.fset.Position(n.Pos())
	return fmt.Sprintf("%s:%d", p.Filename, p.Line)
}

// covers reports whether dir is pattern or, if that ends in "/...", below it.
func covers(pattern, dir string) bool {
	if below, ok := strings.CutSuffix(pattern, "..."); ok {
		return strings.HasPrefix(dir+"/", below)
	}
	return pattern == dir
}

// report fails the test for each problem.
func report(t *testing.T, problems []string) {
	t.Helper()
	for _, p := range problems {
		t.Error(p)
	}
}

// expect fails the test unless problem i contains want[i], for all problems.
func expect(t *testing.T, problems []string, want ...string) {
	t.Helper()
	if len(problems) != len(want) {
		t.Errorf("found %d problems, want %d: %q", len(problems), len(want), problems)
		return
	}
	for i := range want {
		if !strings.Contains(problems[i], want[i]) {
			t.Errorf("problem %d is %q, want %q in it", i, problems[i], want[i])
		}
	}
}
