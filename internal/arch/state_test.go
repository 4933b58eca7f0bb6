package arch

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// constants returns the package-level variables that are neither errors nor tables and never
// change, with the reason.
func constants() map[string]string {
	return map[string]string{
		"internal/plan.collectives":   "the descriptors of all collectives; a test adds one while no other test runs",
		"internal/link.beat":          "the bytes of a frame, which cannot be a Go constant",
		"internal/link.past":          "a point in time, which cannot be a Go constant",
		"hw/transport/rdma.past":      "a point in time, which cannot be a Go constant",
		"hw/internal/verbs.Library":   "the file name of a C library; a test with a fake sets it before the first use",
		"hw/internal/verbs.fn":        "the functions of a C library, which is open until the process ends",
		"hw/internal/verbs.errnoLoc":  "a function of a C library, which is open until the process ends",
		"hw/internal/verbs.Load":      "opens a C library, which is open until the process ends",
		"hw/internal/verbs.regDMABuf": "a function of a C library, which is open until the process ends",
		"hw/transport/rdma.exposures": "the memory of GPUs in the address space of the process",
		"hw/device/cuda.exports":      "the exported memory in the address space of the process",
		"hw/internal/cudafake.Load":   "opens a C library, which is open until the process ends",
		"hw/internal/verbsfake.Load":  "opens a C library, which is open until the process ends",
		"transport.mappings":          "the mappings of the address space of the process",
		"internal/kernel.f16Values":   "a table of 65,536 constants, computed on first use",
		"internal/kernel.inGo":        "a table of functions, made on first use",
		"internal/kernel.hasFP16":     "a feature of the processor, found on first use",
	}
}

// checkState finds init functions and package-level variables that can change: two clusters in
// one process, or two tests, must not affect each other.
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
						problems = append(problems, fmt.Sprintf("%s: func init: importing a package must have no effect", tr.at(d)))
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
			case name.Name == "_" || constants()[f.dir+"."+name.Name] != "":
			case !constant:
				problems = append(problems, fmt.Sprintf("%s: var %s: a package has no state: make it a field or a parameter, or list it in internal/arch with the reason why it never changes", tr.at(name), name.Name))
			case written[name.Name]:
				problems = append(problems, fmt.Sprintf("%s: var %s is written in this package: a package has no state (if the write is to a local variable, rename that)", tr.at(name), name.Name))
			}
		}
	}
	return problems
}

// isError reports whether the value of a variable is a new error, or one of another package.
func isError(value ast.Expr) bool {
	if other, ok := value.(*ast.SelectorExpr); ok {
		return strings.HasPrefix(other.Sel.Name, "Err")
	}
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

// isTable reports whether the value of a variable is a literal array, slice or map.
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

// isEmbedded reports whether a go:embed directive fills a variable from a file.
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

// writtenNames returns the names of the variables that are assigned, changed by a builtin, or
// whose address is taken.
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

// rootName returns the variable at the root of an expression: x of x[i].f.
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

func TestState(t *testing.T) {
	tr := load(t)
	report(t, checkState(tr))
	for name := range constants() {
		if !tr.declares(name) {
			t.Errorf("constants lists %s: no such variable", name)
		}
	}
}

// declares reports whether a package-level variable exists, named as in constants.
func (tr *tree) declares(name string) bool {
	dot := strings.LastIndexByte(name, '.')
	for _, f := range tr.in(name[:dot]) {
		for _, d := range f.ast.Decls {
			d, ok := d.(*ast.GenDecl)
			if !ok || d.Tok != token.VAR || f.test {
				continue
			}
			for _, s := range d.Specs {
				if slices.ContainsFunc(s.(*ast.ValueSpec).Names, func(id *ast.Ident) bool { return id.Name == name[dot+1:] }) {
					return true
				}
			}
		}
	}
	return false
}

func TestStateFinds(t *testing.T) {
	const hasState = "a package has no state"
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
		"a counter":               {`var n int`, []string{hasState}},
		"a lock":                  {`var mu sync.Mutex`, []string{hasState}},
		"a registry":              {`var drivers = map[string]D{}; func Add(n string, d D) { drivers[n] = d }`, []string{"is written in"}},
		"a table that is cleared": {`var t = []int{1}; func f() { clear(t) }`, []string{"is written in"}},
		"an address of a table":   {`var t = [2]int{1}; func f() *int { return &t[0] }`, []string{"is written in"}},
		"a result of a function":  {`var x = f()`, []string{hasState}},
		"init":                    {`func init() {}`, []string{"must have no effect"}},
		"a method called init":    {`func (t *T) init() {}`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, checkState(parse(t, map[string]string{"p/a.go": "package p\n" + test.src})), test.want...)
		})
	}
	expect(t, checkState(parse(t, map[string]string{"p/a_test.go": "package p\nvar update bool\nfunc init() {}"})))
}
