package arch

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// skipping returns the files that may call Skip, with the reason.
func skipping() map[string]string {
	return map[string]string{
		"internal/require/require.go":      "all other packages skip by it",
		"internal/require/race.go":         "all other packages skip by it",
		"internal/require/require_test.go": "tests of internal/require",
		"nexartest/nexartest_test.go":      "tests a rank that skips",
	}
}

// checkRaceLines finds lines "//race:none REASON" without a reason or without an effect on "make race".
func checkRaceLines(tr *tree) (problems []string) {
	for _, f := range tr.files {
		for _, group := range f.ast.Comments {
			for _, c := range group.List {
				line, found := strings.CutPrefix(c.Text, "//race:")
				reason, none := strings.CutPrefix(line, "none ")
				if found && (!none || !f.test || strings.TrimSpace(reason) == "") {
					problems = append(problems, fmt.Sprintf("%s: %s: want \"//race:none REASON\" in a test file", tr.at(c), c.Text))
				}
			}
		}
	}
	return problems
}

func TestRaceLines(t *testing.T) { report(t, checkRaceLines(load(t))) }

func TestRaceLinesFinds(t *testing.T) {
	expect(t, checkRaceLines(parse(t, map[string]string{
		"a/a.go":      "//race:none it starts no goroutine\n\npackage a",
		"b/a_test.go": "//race:none\n\npackage b", "c/a_test.go": "//race:skip it is slow\n\npackage c",
		"d/a_test.go": "//race:none it starts no goroutine\n\npackage d",
	})), "a/a.go:1", "b/a_test.go:1", "c/a_test.go:1")
}

// checkShortened finds functions other than tests that let a test do less under the race detector. ".ci/unit" runs those tests again
// that do so themselves, and all of a package with the line "//race:none REASON" or with an import of worldtest.
func checkShortened(tr *tree) (problems []string) {
	for _, dir := range tr.dirs() {
		files := tr.in(dir)
		if dir == "test/worldtest" || slices.ContainsFunc(files, func(f *file) bool {
			return importName(f, module+"/test/worldtest") != "" || slices.ContainsFunc(f.ast.Comments, func(g *ast.CommentGroup) bool {
				return slices.ContainsFunc(g.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//race:none ") })
			})
		}) {
			continue
		}
		for _, f := range files {
			for _, d := range f.ast.Decls {
				if fn, ok := d.(*ast.FuncDecl); ok && f.test && strings.HasPrefix(fn.Name.Name, "Test") {
					continue
				}
				ast.Inspect(d, func(n ast.Node) bool {
					if s, ok := n.(*ast.SelectorExpr); ok {
						switch name := fmt.Sprintf("%v.%s", s.X, s.Sel.Name); name {
						case "require.NoRace", "require.Race", "testing.Short":
							problems = append(problems, fmt.Sprintf("%s: %s: use it in a function Test only, where .ci/unit finds it", tr.at(s), name))
						}
					}
					return true
				})
			}
		}
	}
	return problems
}

func TestShortened(t *testing.T) { report(t, checkShortened(load(t))) }

func TestShortenedFinds(t *testing.T) {
	expect(t, checkShortened(parse(t, map[string]string{
		"a/a_test.go": "package a\nfunc TestA(t *testing.T) { require.NoRace(t, \"long\") }\nfunc size() bool { return require.Race }",
		"b/b_test.go": "package b\nvar n = testing.Short()",
		"c/c.go":      "package c\nfunc TestC(t *testing.T) { require.NoRace(t, \"long\") }",
		"d/d_test.go": "//race:none it starts no goroutine\n\npackage d\nvar n = testing.Short()",
		"e/e_test.go": "package e\nimport \"github.com/nexar-go/nexar/test/worldtest\"\nvar n = require.Race",
	})), "a/a_test.go:3", "b/b_test.go:2", "c/c.go:2")
}

// checkSkips finds direct calls of Skip. Package require prints the reason, and
// NEXAR_REQUIRE turns skips into failures.
func checkSkips(tr *tree) (problems []string) {
	for _, f := range tr.files {
		if skipping()[f.path] != "" {
			continue
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				return !takesRapid(n.Type)
			case *ast.FuncLit:
				return !takesRapid(n.Type)
			case *ast.CallExpr:
				f, isMethod := n.Fun.(*ast.SelectorExpr)
				if !isMethod {
					return true
				}
				if name := f.Sel.Name; name == "Skip" || name == "Skipf" || name == "SkipNow" {
					problems = append(problems, fmt.Sprintf("%s: %s: use internal/require, so that NEXAR_REQUIRE can turn the skip into a failure", tr.at(f), name))
				}
			}
			return true
		})
	}
	return problems
}

// takesRapid reports whether a function has a parameter of type *rapid.T, whose Skip draws
// another input.
func takesRapid(f *ast.FuncType) bool {
	for _, p := range f.Params.List {
		star, ok := p.Type.(*ast.StarExpr)
		if !ok {
			continue
		}
		s, ok := star.X.(*ast.SelectorExpr)
		if !ok {
			continue
		}
		if x, ok := s.X.(*ast.Ident); ok && x.Name == "rapid" && s.Sel.Name == "T" {
			return true
		}
	}
	return false
}

// checkLeaks finds packages that start goroutines and do not check for leaks in their tests.
// Goroutines of commands end with the process.
func checkLeaks(tr *tree) (problems []string) {
	for _, dir := range tr.dirs() {
		starts, tested := "", false
		for _, f := range tr.in(dir) {
			if f.test {
				tested = tested || importName(f, "go.uber.org/goleak") != ""
			} else if f.ast.Name.Name != "main" && !covers("internal/command/...", dir) && starts == "" {
				starts = tr.goroutine(f)
			}
		}
		if starts != "" && !tested {
			problems = append(problems, fmt.Sprintf("%s: starts a goroutine, but no test of the package uses goleak: every goroutine has an owner that waits for it", starts))
		}
	}
	return problems
}

// goroutine returns the position at which a file starts a goroutine, or "".
func (tr *tree) goroutine(f *file) (where string) {
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			where = tr.at(n)
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Go" {
				where = tr.at(n)
			}
		}
		return where == ""
	})
	return where
}

func TestSkips(t *testing.T) {
	tr := load(t)
	report(t, checkSkips(tr))
	for path := range skipping() {
		if !slices.ContainsFunc(tr.files, func(f *file) bool { return f.path == path }) {
			t.Errorf("skipping lists %s: no such file", path)
		}
	}
}

func TestLeaks(t *testing.T) { report(t, checkLeaks(load(t))) }

func TestSkipsFinds(t *testing.T) {
	expect(t, checkSkips(parse(t, map[string]string{
		"p/a_test.go":                 "package p\nfunc f(t *testing.T) {\n t.Skip()\n if testing.Short() { t.Skipf(\"short\") }\n}",
		"p/b_test.go":                 "package p\nfunc f(t *rapid.T) { t.Skip() }",
		"internal/require/require.go": "package require\nfunc f(t *testing.T) { t.Skip() }",
		"internal/arch/skip_test.go":  "package arch\nfunc f(t *testing.T) { require.Root(t) }",
	})), "p/a_test.go:3", "p/a_test.go:4")
}

func TestLeaksFinds(t *testing.T) {
	for name, test := range map[string]struct {
		code, test string
		want       []string
	}{
		"go statement, no test": {"package p\nfunc f() { go f() }", "package p", []string{"p/a.go:2"}},
		"group, no test":        {"package p\nfunc f() { wg.Go(f) }", "package p", []string{"p/a.go:2"}},
		"tested":                {"package p\nfunc f() { go f() }", "package p\nimport \"go.uber.org/goleak\"", nil},
		"no goroutine":          {"package p\nfunc f() { f() }", "package p", nil},
		"a command":             {"package main\nfunc f() { go f() }", "package main", nil},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, checkLeaks(parse(t, map[string]string{"p/a.go": test.code, "p/a_test.go": test.test})), test.want...)
		})
	}
}
