package arch

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strings"
	"testing"
)

// checkAPI finds exported declarations of public packages that mention types of
// internal packages: users could not name these. An alias makes a type public.
func checkAPI(tr *tree) (problems []string) {
	for _, f := range tr.files {
		if f.test || f.ast.Name.Name == "main" || f.dir != "." && slices.ContainsFunc([]string{"internal", "cmd", "tools", "test", "bench", "examples"},
			func(top string) bool { return f.dir == top || strings.HasPrefix(f.dir, top+"/") }) {
			continue
		}
		for _, d := range f.ast.Decls {
			for name, leaked := range f.leaked(d) {
				problems = append(problems, fmt.Sprintf("%s: the exported %s mentions %s, which users cannot import", tr.at(d), name, leaked))
			}
		}
	}
	return problems
}

// leaked maps exported names of a declaration to an internal type in them.
func (f *file) leaked(d ast.Decl) map[string]string {
	found := make(map[string]string)
	note := func(name string, n ast.Node) {
		if sel := f.internal(n); sel != "" && ast.IsExported(name) {
			found[name] = sel
		}
	}
	switch d := d.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil || ast.IsExported(receiver(d)) {
			note(d.Name.Name, d.Type)
		}
	case *ast.GenDecl:
		for _, s := range d.Specs {
			switch s := s.(type) {
			case *ast.TypeSpec:
				if !s.Assign.IsValid() {
					note(s.Name.Name, s.Type)
				}
			case *ast.ValueSpec:
				if s.Type != nil {
					note(s.Names[0].Name, s.Type)
				}
			}
		}
	}
	return found
}

// receiver is the name of the type of a method.
func receiver(d *ast.FuncDecl) (name string) {
	ast.Inspect(d.Recv.List[0].Type, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && name == "" {
			name = id.Name
		}
		return true
	})
	return name
}

// internal is the first type of an internal package in the exported part of a node.
// Fields that are not exported do not count.
func (f *file) internal(n ast.Node) (found string) {
	ast.Inspect(n, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.StructType:
			for _, field := range n.Fields.List {
				if len(field.Names) == 0 || slices.ContainsFunc(field.Names, func(id *ast.Ident) bool { return id.IsExported() }) {
					found = max(found, f.internal(field.Type))
				}
			}
			return false
		case *ast.SelectorExpr:
			if id, ok := n.X.(*ast.Ident); ok && f.importsInternal(id.Name) {
				found = id.Name + "." + n.Sel.Name
			}
		}
		return found == ""
	})
	return found
}

// importsInternal reports whether a file knows an internal package by a name.
func (f *file) importsInternal(name string) bool {
	return slices.ContainsFunc(f.imports, func(imp string) bool {
		return strings.HasPrefix(imp, module+"/internal/") && path.Base(imp) == name
	})
}

func TestAPI(t *testing.T) { report(t, checkAPI(load(t))) }

func TestAPIFinds(t *testing.T) {
	const head = `import "github.com/nexar-go/nexar/internal/wire"; `
	expect(t, checkAPI(parse(t, map[string]string{
		"a.go":                "package nexar; " + head + `func F(c wire.Call) {}`,
		"b.go":                "package nexar; " + head + `type T struct{ c wire.Call; N int }; func (t T) m(c wire.Call) {}`,
		"c.go":                "package nexar; " + head + `type Call = wire.Call`,
		"d.go":                "package nexar; " + head + `type U struct{ C []wire.Call }`,
		"device/a.go":         "package device; " + head + `func (t *T) M() *wire.Call { return nil }`,
		"device/b.go":         "package device; " + head + `func (t *t) M() *wire.Call { return nil }`,
		"internal/comm/a.go":  "package comm; " + head + `func F(c wire.Call) {}`,
		"transport/x/a.go":    "package x; " + head + `var V wire.Call`,
		"cmd/nexar/a.go":      "package main; " + head + `func F(c wire.Call) {}`,
		"compress/a_test.go":  "package compress; " + head + `func F(c wire.Call) {}`,
		"nexartest/plain.go":  `package nexartest; func F() {}`,
		"compress/generic.go": "package compress; " + head + `func G[T wire.Call]() {}`,
	})),
		"a.go:1: the exported F mentions wire.Call", "generic.go:1: the exported G", "d.go:1: the exported U", "device/a.go:1: the exported M", "the exported V")
}
