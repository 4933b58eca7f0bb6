package arch

import (
	_ "embed"
	"fmt"
	"go/ast"
	"maps"
	"slices"
	"strings"
	"testing"
)

//go:embed imports.txt
var importsText string

// A row is a line of imports.txt.
type row struct {
	line     int
	layer    string   // "pipes"
	reason   string   // the heading of the layer
	packages []string // folders, or modules in the layer "modules"
	imports  []string // folders that these packages may import, or that may import these modules
}

// parseRows reads the rows of imports.txt.
func parseRows(text string) (rows []row, err error) {
	var layer, reason string
	for i, line := range strings.Split(text, "\n") {
		names, imports, found := strings.Cut(line, ":")
		switch {
		case line == "" || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "= ") && found:
			layer, reason = names[len("= "):], strings.TrimSpace(imports)
		case strings.HasPrefix(line, " ") && len(rows) > 0:
			last := &rows[len(rows)-1]
			last.imports = append(last.imports, folders(line)...)
		case found && layer != "":
			r := row{line: i + 1, layer: layer, reason: reason, packages: folders(names), imports: folders(imports)}
			if layer == "modules" {
				r.packages = strings.Fields(names)
			}
			rows = append(rows, r)
		default:
			return nil, fmt.Errorf("imports.txt:%d: %q: want \"PACKAGES: IMPORTS\" below a heading \"= LAYER: REASON\"", i+1, line)
		}
	}
	return rows, nil
}

// folders returns the folders that a list of names in imports.txt means.
func folders(names string) []string {
	list := strings.Fields(names)
	for i, name := range list {
		switch below, atRoot := strings.CutPrefix(name, "/"); {
		case name == "_test":
		case !atRoot:
			list[i] = "internal/" + name
		case below == "" || below == "_test":
			list[i] = "." + below
		default:
			list[i] = below
		}
	}
	return list
}

// has reports whether a list of folders includes dir or, if test is set, its tests or those of all packages.
func has(list []string, dir string, test bool) bool {
	return slices.ContainsFunc(list, func(pattern string) bool {
		of, tests := strings.CutSuffix(pattern, "_test")
		return (test || !tests) && (of == "" || covers(of, dir))
	})
}

// An importCheck compares the imports of a tree with the rows of imports.txt.
type importCheck struct {
	*tree
	rows     []row
	used     map[string]bool // names of imports.txt that a file needs, by line and folder
	problems []string
}

// checkImports finds imports that the rows do not allow, packages without a row, and names in rows that no file needs.
func checkImports(tr *tree, text string) ([]string, error) {
	rows, err := parseRows(text)
	if err != nil {
		return nil, err
	}
	c := &importCheck{tree: tr, rows: rows, used: make(map[string]bool)}
	for _, f := range tr.files {
		own := slices.IndexFunc(rows, func(r row) bool { return r.layer != "modules" && has(r.packages, f.dir, false) })
		if own < 0 {
			c.add("%s: imports.txt has no row for %s: list the packages that it may import", f.path, f.dir)
			continue
		}
		c.use(rows[own], rows[own].packages, f.dir, false)
		for i, imp := range f.imports {
			c.checkImport(f, f.ast.Imports[i], imp, own)
		}
	}
	for _, r := range rows {
		for _, name := range slices.Concat(r.packages, r.imports) {
			if !c.used[fmt.Sprint(r.line, name)] {
				c.add("imports.txt:%d: no file needs %s in this row: remove it", r.line, name)
			}
		}
	}
	return c.problems, nil
}

func (c *importCheck) add(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// use notes that a file needs the names of a row that include dir, and reports whether there are any.
func (c *importCheck) use(r row, list []string, dir string, test bool) (found bool) {
	for _, name := range list {
		if has([]string{name}, dir, test) {
			found = true
			c.used[fmt.Sprint(r.line, name)] = true
		}
	}
	return found
}

// checkImport checks one import of a file. The row of its package has the index own.
func (c *importCheck) checkImport(f *file, spec *ast.ImportSpec, imp string, own int) {
	first, _, _ := strings.Cut(imp, "/")
	dir, ours := strings.CutPrefix(imp+"/", module+"/")
	switch {
	case imp == "C":
		c.add("%s: %s imports C: the command and programs that use the library are static, without cgo", c.at(spec), f.dir)
	case !strings.Contains(first, "."): // the standard library
	case !ours:
		c.checkModule(f, spec, imp)
	default:
		if dir = strings.TrimSuffix(dir, "/"); dir == "" {
			dir = "."
		}
		c.checkPackage(f, spec, dir, own)
	}
}

// checkPackage checks the import of the package in dir, which belongs to this repository.
func (c *importCheck) checkPackage(f *file, spec *ast.ImportSpec, dir string, own int) {
	allowed := dir == f.dir
	for _, r := range c.rows {
		if r.layer != "modules" && c.use(r, r.packages, f.dir, f.test) && c.use(r, r.imports, dir, false) {
			allowed = true
		}
	}
	target := slices.IndexFunc(c.rows, func(r row) bool { return r.layer != "modules" && has(r.packages, dir, false) })
	r := c.rows[own]
	if f.test && target >= 0 {
		allowed = allowed || c.rows[target].layer == "tests" || r.layer != "users" && target < own
	}
	if !allowed {
		c.add("%s: %s imports %s, which imports.txt:%d does not list (%s: %s)", c.at(spec), f.dir, dir, r.line, r.layer, r.reason)
	}
}

// checkModule checks the import of a package of another module.
func (c *importCheck) checkModule(f *file, spec *ast.ImportSpec, imp string) {
	r, module := c.module(imp)
	if module == "" {
		c.add("%s: %s imports %s: imports.txt has no row for its module: a new dependency needs one", c.at(spec), f.dir, imp)
		return
	}
	c.used[fmt.Sprint(r.line, module)] = true
	if !c.use(r, r.imports, f.dir, f.test) {
		c.add("%s: %s imports %s, whose module only the packages of imports.txt:%d may import", c.at(spec), f.dir, imp, r.line)
	}
}

// module returns the row and the longest name in it that includes the import path of another module.
func (c *importCheck) module(imp string) (found row, name string) {
	for _, r := range c.rows {
		for _, m := range r.packages {
			if r.layer == "modules" && strings.HasPrefix(imp+"/", m+"/") && len(m) > len(name) {
				found, name = r, m
			}
		}
	}
	return found, name
}

// modulesOf returns the packages of other modules that the package in dir imports, directly or through others of this
// repository.
func modulesOf(tr *tree, dir string) []string {
	seen, found := map[string]bool{dir: true}, make(map[string]bool)
	for todo := []string{dir}; len(todo) > 0; todo = todo[1:] {
		for _, f := range tr.in(todo[0]) {
			for _, imp := range f.imports {
				below, ours := strings.CutPrefix(imp, module+"/")
				first, _, _ := strings.Cut(imp, "/")
				switch {
				case f.test || seen[below]:
				case ours:
					seen[below] = true
					todo = append(todo, below)
				case strings.Contains(first, "."):
					found[imp] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

func TestImports(t *testing.T) {
	problems, err := checkImports(load(t), importsText)
	if err != nil {
		t.Fatal(err)
	}
	report(t, problems)
}

// The check names the file, the import and the row of each import that is planted into the repository.
func TestImportsFinds(t *testing.T) {
	const nexar = module
	tr := load(t)
	before, err := checkImports(tr, importsText) // TestImports reports these.
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ file, imp, want string }{
		{"internal/plan/a.go", nexar + "/internal/wire", "internal/plan imports internal/wire, which imports.txt:10 does not list (bottom: "},
		{"internal/plan/a.go", "strings", ""},
		{"internal/plan/a_test.go", nexar + "/internal/wire", "internal/plan imports internal/wire"},
		{"internal/plan/a_test.go", nexar + "/internal/require", ""},
		{"internal/link/a_test.go", nexar + "/transport/mem", ""},
		{"internal/link/a_test.go", nexar + "/internal/engine", "(operations: "},
		{"internal/link/a.go", nexar + "/transport/mem", "internal/link imports transport/mem"},
		{"internal/link/a_windows.go", nexar + "/transport/mem", "internal/link imports transport/mem"},
		{"internal/link/a.go", nexar + "/internal/wire", ""},
		{"internal/kernel/a.go", nexar + "/internal/require", "internal/kernel imports internal/require"},
		{"transport/quic/a.go", nexar, "transport/quic imports ., "},
		{"transport/quic/a.go", nexar + "/transport/tcp", "transport/quic imports transport/tcp"},
		{"internal/relay/forward/a.go", nexar + "/transport", "(pipes: "},
		{"internal/rendezvous/server/a.go", nexar + "/internal/rendezvous/raftlog", "(trust and seeds: "},
		{"internal/command/a.go", nexar + "/internal/wire", "(users: "},
		{"internal/command/a_test.go", nexar + "/internal/wire", "(users: "},
		{"examples/rpc/a.go", nexar + "/internal/testbuild", "(users: "},
		{"test/faults/a_test.go", nexar + "/nexartest", ""},
		{"a.go", nexar + "/internal/comm", ""},
		{"a.go", nexar + "/internal/rendezvous/raftlog", "(API: "},
		{"a.go", nexar + "/nexartest", "(API: "},
		{"internal/util/a.go", "strings", "imports.txt has no row for internal/util"},
		{"transport/quic/a.go", "github.com/quic-go/quic-go", ""},
		{"transport/sim/a_test.go", "github.com/quic-go/quic-go", ""},
		{"transport/sim/a.go", "github.com/quic-go/quic-go/logging", "whose module only"},
		{"internal/spin/a.go", "golang.org/x/sys/unix", ""},
		{"internal/spin/a.go", "golang.org/x/sys/cpu", "whose module only"},
		{"cmd/nexar/a.go", "github.com/stretchr/testify", "no row for its module"},
		{"internal/command/a.go", "github.com/fatih/color", ""},
		{"a.go", "github.com/fatih/color", "whose module only"},
		{"internal/link/a.go", "go.uber.org/goleak", "whose module only"},
		{"internal/link/a_test.go", "go.uber.org/goleak", ""},
		{"transport/shm/a.go", "C", "transport/shm imports C"},
	} {
		planted := &tree{fset: tr.fset, files: slices.Clone(tr.files)}
		if err := planted.add(test.file, fmt.Appendf(nil, "package p\n\nimport _ %q\n", test.imp)); err != nil {
			t.Fatal(err)
		}
		problems, err := checkImports(planted, importsText)
		problems = slices.DeleteFunc(problems, func(p string) bool { return slices.Contains(before, p) })
		all := strings.Join(problems, "\n")
		if err != nil || test.want == "" && all != "" || test.want != "" && (len(problems) != 1 || !strings.HasPrefix(all, test.file+":") || !strings.Contains(all, test.want)) {
			t.Errorf("%s imports %s: got problems %q, %v, want %q", test.file, test.imp, all, err, test.want)
		}
	}
}

// Names in rows that no file needs are problems, and so are lines that are no rows.
func TestImportsFindsRows(t *testing.T) {
	tr := parse(t, map[string]string{"internal/wire/a.go": "package wire", "trace/a_test.go": "package trace\nimport _ \"example.com/a/b\""})
	problems, err := checkImports(tr, "= one: first\n/trace:\nwire: /trace\n  gone\nold:\n= modules:\nexample.com/a: _test /trace\n")
	if err != nil {
		t.Fatal(err)
	}
	expect(t, problems, "imports.txt:3: no file needs trace ", "imports.txt:3: no file needs internal/gone ", "imports.txt:5: no file needs internal/old ")
	for _, text := range []string{"wire: trace\n", "= one: first\nwire\n"} {
		if _, err := checkImports(tr, text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}

// Programs that use the library depend on a few small modules.
func TestModulesOfTheLibrary(t *testing.T) {
	tr := load(t)
	want := []string{"github.com/caarlos0/env/v11", "github.com/quic-go/quic-go", "golang.org/x/net/ipv4",
		"golang.org/x/sys/cpu", "golang.org/x/sys/unix", "golang.org/x/sys/windows", "golang.org/x/sys/windows/registry"}
	if got := modulesOf(tr, "."); !slices.Equal(got, want) {
		t.Errorf("the root package imports %q, want %q: programs of users must not depend on more", got, want)
	}
	if err := tr.add("internal/link/a.go", []byte("package link\nimport _ \"github.com/fatih/color\"")); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(modulesOf(tr, "."), "github.com/fatih/color") {
		t.Error("an import of internal/link is not found")
	}
}
