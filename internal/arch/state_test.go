package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"strings"
	"testing"
)

// kept are the package-level variables that are neither an error nor a table,
// each with the reason why it is no state.
func kept() map[string]string {
	return map[string]string{
		"internal/link.past":        "a point in time, which Go cannot have as a constant",
		"internal/kernel.f16Values": "a table of constants that is computed on first use, as it is too large to be written down",
	}
}

// checkState finds init functions and package-level variables that can change: two
// clusters in one process, or two tests, must not be able to affect each other.
func checkState(tr *tree) (problems []string) {
	for _, dir := range tr.dirs() {
		files := tr.in(dir)
		written := writtenNames(files)
		for _, f := range files {
			if f.test {
				continue
			}
			for _, d := range f.ast.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					if d.Recv == nil && d.Name.Name == "init" {
						problems = append(problems, fmt.Sprintf("%s: func init: importing a package must do nothing", tr.at(d)))
					}
				case *ast.GenDecl:
					problems = append(problems, tr.variables(f, d, written)...)
				}
			}
		}
	}
	return problems
}

// variables finds variables of a declaration that could be state.
func (tr *tree) variables(f *file, d *ast.GenDecl, written map[string]bool) (problems []string) {
	if d.Tok != token.VAR {
		return nil
	}
	for _, s := range d.Specs {
		spec := s.(*ast.ValueSpec)
		for i, name := range spec.Names {
			var value ast.Expr
			if i < len(spec.Values) {
				value = spec.Values[i]
			}
			constant := isError(value) || isTable(value) || isEmbedded(d, spec)
			switch {
			case name.Name == "_" || kept()[f.dir+"."+name.Name] != "":
			case !constant:
				problems = append(problems, fmt.Sprintf("%s: var %s: a package keeps no state; make it a field, a parameter, or a line in internal/arch that says why it is none", tr.at(name), name.Name))
			case written[name.Name]:
				problems = append(problems, fmt.Sprintf("%s: var %s is written to in this package: a package keeps no state (if that is a local variable, rename it)", tr.at(name), name.Name))
			}
		}
	}
	return problems
}

// isError reports whether a variable is a sentinel: an error made on the spot.
func isError(value ast.Expr) bool {
	call, ok := value.(*ast.CallExpr)
	if !ok {
		return false
	}
	s, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	x, ok := s.X.(*ast.Ident)
	return ok && (x.Name == "errors" && s.Sel.Name == "New" || x.Name == "fmt" && s.Sel.Name == "Errorf")
}

// isTable reports whether a variable is an array, a slice or a map written out.
func isTable(value ast.Expr) bool {
	lit, ok := value.(*ast.CompositeLit)
	if !ok {
		return false
	}
	switch lit.Type.(type) {
	case *ast.ArrayType, *ast.MapType:
		return true
	}
	return false
}

// isEmbedded reports whether the compiler fills a variable from a file.
func isEmbedded(d *ast.GenDecl, spec *ast.ValueSpec) bool {
	for _, doc := range []*ast.CommentGroup{d.Doc, spec.Doc} {
		if doc == nil {
			continue
		}
		for _, c := range doc.List {
			if strings.HasPrefix(c.Text, "//go:embed ") {
				return true
			}
		}
	}
	return false
}

// writtenNames are the variables, by name, that some statement changes or
// takes the address of.
func writtenNames(files []*file) map[string]bool {
	written := make(map[string]bool)
	note := func(e ast.Expr) {
		if name := rootName(e); name != "" {
			written[name] = true
		}
	}
	for _, f := range files {
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.AssignStmt:
				for _, e := range n.Lhs {
					if n.Tok != token.DEFINE {
						note(e)
					}
				}
			case *ast.IncDecStmt:
				note(n.X)
			case *ast.UnaryExpr:
				if n.Op == token.AND {
					note(n.X)
				}
			case *ast.CallExpr:
				if fn, ok := n.Fun.(*ast.Ident); ok && (fn.Name == "delete" || fn.Name == "clear" || fn.Name == "copy") {
					note(n.Args[0])
				}
			}
			return true
		})
	}
	return written
}

// rootName is the variable that an expression is a part of: x of x[i].f.
func rootName(e ast.Expr) string {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x.Name
		case *ast.IndexExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		default:
			return ""
		}
	}
}

func TestState(t *testing.T) { report(t, checkState(load(t))) }

func TestStateFinds(t *testing.T) {
	const keeps = "a package keeps no state"
	for name, test := range map[string]struct {
		src  string
		want []string
	}{
		"an error":                {`var ErrX = errors.New("x")`, nil},
		"an error that wraps":     {`var errX = fmt.Errorf("x: %w", ErrY)`, nil},
		"an interface":            {`var _ I = (*T)(nil)`, nil},
		"a table":                 {`var names = [...]string{"a"}; func f() string { return names[0] }`, nil},
		"an embedded file":        {"//go:embed x\nvar x []byte", nil},
		"a local variable":        {`func f() { var x int; x++ }`, nil},
		"a counter":               {`var n int`, []string{keeps}},
		"a lock":                  {`var mu sync.Mutex`, []string{keeps}},
		"a registry":              {`var drivers = map[string]D{}; func Add(n string, d D) { drivers[n] = d }`, []string{"is written to"}},
		"a table that is cleared": {`var t = []int{1}; func f() { clear(t) }`, []string{"is written to"}},
		"a table that is lent":    {`var t = [2]int{1}; func f() *int { return &t[0] }`, []string{"is written to"}},
		"what a function returns": {`var x = f()`, []string{keeps}},
		"init":                    {`func init() {}`, []string{"must do nothing"}},
		"a method called init":    {`func (t *T) init() {}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, checkState(parse(t, map[string]string{"p/a.go": "package p\n" + test.src})), test.want...)
		})
	}
	expect(t, checkState(parse(t, map[string]string{"p/a_test.go": "package p\nvar update bool\nfunc init() {}"})))
}
