package arch

import (
	"fmt"
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// pure returns the packages that take messages and the time as parameters and return
// messages and deadlines. The same calls give the same results, in a simulation and on
// every node.
func pure() []string {
	return []string{"internal/plan", "internal/cost", "internal/deadlock", "internal/p2p/match", "internal/membership",
		"internal/link/lane", "internal/mesh/blame", "internal/relay/forward", "internal/relay/relaytest", "simulate", "internal/topology", "internal/page/model"}
}

// impure returns the imports that a pure package must not have, by the first element of
// their path, with the reason.
func impure() map[string]string {
	return map[string]string{
		"net":     "a pure package sends nothing: it returns messages",
		"os":      "a pure package does not depend on the machine: make the value a parameter",
		"syscall": "a pure package does not depend on the machine: make the value a parameter",
		"log":     "a pure package does not log: it returns events, which the caller can log",
		"testing": "test helpers belong to test files",
	}
}

// clocks returns the functions of package time that read the clock.
func clocks() []string {
	return []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTimer", "NewTicker"}
}

// checkPure finds dependencies of pure packages on anything but their input. Test files are
// exempt.
func checkPure(tr *tree) (problems []string) {
	for _, dir := range pure() {
		for _, f := range tr.in(dir) {
			if f.test {
				continue
			}
			problems = append(problems, pureImports(f)...)
			problems = append(problems, tr.pureCode(f)...)
		}
	}
	return problems
}

func pureImports(f *file) (problems []string) {
	for _, imp := range f.imports {
		first, _, _ := strings.Cut(imp, "/")
		if why := impure()[first]; why != "" {
			problems = append(problems, fmt.Sprintf("%s imports %s: %s", f.path, imp, why))
		}
	}
	return problems
}

func (tr *tree) pureCode(f *file) (problems []string) {
	clock := importName(f, "time")
	ast.Inspect(f.ast, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			problems = append(problems, fmt.Sprintf("%s: a pure package starts no goroutine: its caller decides about concurrency", tr.at(n)))
		case *ast.SelectorExpr:
			x, ok := n.X.(*ast.Ident)
			if ok && clock != "" && x.Name == clock && slices.Contains(clocks(), n.Sel.Name) {
				problems = append(problems, fmt.Sprintf("%s: time.%s in a pure package: the time is a parameter, so that a simulation can replay it", tr.at(n), n.Sel.Name))
			}
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "Go" {
				problems = append(problems, fmt.Sprintf("%s: a pure package starts no goroutine: its caller decides about concurrency", tr.at(n)))
			}
		}
		return true
	})
	return problems
}

// importName returns the local name of an imported package in a file, or "".
func importName(f *file, imp string) string {
	for i, p := range f.imports {
		if p != imp {
			continue
		}
		if n := f.ast.Imports[i].Name; n != nil {
			return n.Name
		}
		return imp[strings.LastIndex(imp, "/")+1:]
	}
	return ""
}

func TestPure(t *testing.T) {
	tr := load(t)
	report(t, checkPure(tr))
	for _, dir := range pure() {
		if len(tr.in(dir)) == 0 {
			t.Errorf("pure lists %s: no such package", dir)
		}
	}
}

func TestPureFinds(t *testing.T) {
	for name, test := range map[string]struct {
		src  string
		want []string
	}{
		"arithmetic with times": {`import "time"; func f(now time.Time) time.Time { return now.Add(time.Second) }`, nil},
		"the clock":             {`import "time"; func f() time.Time { return time.Now() }`, []string{"time.Now"}},
		"the clock as a value":  {`import "time"; var now = time.Now`, []string{"time.Now"}},
		"the clock, renamed":    {`import clock "time"; func f() { clock.Sleep(1) }`, []string{"time.Sleep"}},
		"a method called Since": {`func f(x T) { x.Since() }`, nil},
		"a goroutine":           {`func f() { go f() }`, []string{"no goroutine"}},
		"a group's goroutine":   {`func f(g G) { g.Go(nil) }`, []string{"no goroutine"}},
		"net/netip":             {`import "net/netip"`, []string{"sends nothing"}},
		"slog":                  {`import "log/slog"`, []string{"does not log"}},
		"os":                    {`import "os"`, []string{"the machine"}},
		"math":                  {`import "math"`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, checkPure(parse(t, map[string]string{"internal/membership/a.go": "package membership\n" + test.src})), test.want...)
			expect(t, checkPure(parse(t, map[string]string{"internal/membership/a_test.go": "package membership\n" + test.src})))
			expect(t, checkPure(parse(t, map[string]string{"internal/link/a.go": "package link\n" + test.src})))
		})
	}
}
