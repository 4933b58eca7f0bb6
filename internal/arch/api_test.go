//race:none it reads the source

package arch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// isInternal reports whether users of the module cannot import a package.
func isInternal(path string) bool {
	return strings.HasPrefix(path, module+"/") && slices.Contains(strings.Split(path, "/"), "internal")
}

// isPublic reports whether users of the repository import a package.
func isPublic(path string) bool {
	rest, inModule := strings.CutPrefix(path, module)
	top, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(rest, "/hw"), "/"), "/")
	return inModule && !isInternal(path) && !slices.Contains([]string{"cmd", "deploy", "tools", "test", "bench", "examples", "vm"}, top)
}

// leaks finds exported declarations of a public package that mention types of internal
// packages, directly or by an alias. Users cannot name such types.
func leaks(pkg *types.Package) (problems []string) {
	scope := pkg.Scope()
	for _, name := range scope.Names() {
		obj := scope.Lookup(name)
		if !obj.Exported() {
			continue
		}
		w := apiWalk{pkg: pkg, seen: make(map[types.Type]bool)}
		if t, ok := obj.(*types.TypeName); ok {
			w.declared(t)
		} else {
			w.walk(obj.Type())
		}
		slices.Sort(w.found)
		for _, leaked := range slices.Compact(w.found) {
			problems = append(problems, fmt.Sprintf("%s.%s mentions %s, which users cannot import", pkg.Path(), name, leaked))
		}
	}
	return problems
}

// An apiWalk walks the types that a user of a package can reach from one declaration.
type apiWalk struct {
	pkg   *types.Package
	seen  map[types.Type]bool
	found []string
}

// declared walks the definition of a type and its exported methods.
func (w *apiWalk) declared(t *types.TypeName) {
	if a, ok := t.Type().(*types.Alias); ok {
		w.walk(a.Rhs())
		return
	}
	w.named(t.Type().(*types.Named))
}

func (w *apiWalk) named(n *types.Named) {
	if w.seen[n] {
		return
	}
	w.seen[n] = true
	for i := range n.TypeParams().Len() {
		w.walk(n.TypeParams().At(i).Constraint())
	}
	w.walk(n.Underlying())
	for i := range n.NumMethods() {
		if m := n.Method(i); m.Exported() {
			w.walk(m.Type())
		}
	}
}

// reference walks a use of a named type.
func (w *apiWalk) reference(obj *types.TypeName, args *types.TypeList) {
	for i := range args.Len() {
		w.walk(args.At(i))
	}
	switch {
	case obj.Pkg() == nil:
	case isInternal(obj.Pkg().Path()):
		w.found = append(w.found, obj.Pkg().Name()+"."+obj.Name())
	case obj.Pkg() == w.pkg && !obj.Exported(): // exported types are walked as declarations
		w.declared(obj)
	}
}

func (w *apiWalk) walk(t types.Type) {
	switch t := t.(type) {
	case *types.Alias:
		w.reference(t.Obj(), t.TypeArgs())
	case *types.Named:
		w.reference(t.Obj(), t.TypeArgs())
	case interface{ Elem() types.Type }: // pointer, slice, array, channel, map
		if m, ok := t.(*types.Map); ok {
			w.walk(m.Key())
		}
		w.walk(t.Elem())
	case *types.Struct:
		for f := range t.Fields() {
			if f.Exported() {
				w.walk(f.Type())
			}
		}
	case *types.Interface:
		for m := range t.ExplicitMethods() {
			if m.Exported() {
				w.walk(m.Type())
			}
		}
		for e := range t.EmbeddedTypes() {
			w.walk(e)
		}
	case *types.Union:
		for term := range t.Terms() {
			w.walk(term.Type())
		}
	case *types.Signature:
		for i := range t.TypeParams().Len() {
			w.walk(t.TypeParams().At(i).Constraint())
		}
		for v := range t.Params().Variables() {
			w.walk(v.Type())
		}
		for v := range t.Results().Variables() {
			w.walk(v.Type())
		}
	}
}

// publicPackages type-checks the public packages of the modules nexar and hw.
func publicPackages(t *testing.T) (list []*types.Package) {
	t.Helper()
	cmd := exec.Command("go", "list", "-export", "-deps", "-json=ImportPath,Export", "./...", "./hw/...")
	cmd.Dir = rootDir(t)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, stderr.String())
	}
	exports := make(map[string]string)
	var public []string
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct{ ImportPath, Export string }
		if err := d.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if isPublic(p.ImportPath) {
			public = append(public, p.ImportPath)
		}
	}
	from := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, path := range public {
		pkg, err := from.Import(path)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, pkg)
	}
	return list
}

// No exported declaration of a public package mentions a type of an internal package. The module hw has an alias of one,
// cuda.Error.
func TestAPI(t *testing.T) {
	list := publicPackages(t)
	if len(list) < 12 {
		t.Fatalf("found %d public packages, want at least 12", len(list))
	}
	for _, pkg := range list {
		if !strings.HasPrefix(pkg.Path(), module+"/hw/") {
			report(t, leaks(pkg))
		}
	}
}

// sources imports packages from their source text, by path.
type sources map[string]string

func (s sources) Import(path string) (*types.Package, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, s[path], 0)
	if err != nil {
		return nil, err
	}
	return (&types.Config{Importer: s}).Check(path, fset, []*ast.File{f}, nil)
}

func TestAPIFinds(t *testing.T) {
	const root = module + "/api"
	for decl, want := range map[string]string{
		`func F(c wire.Call) {}`: "F mentions wire.Call",
		`func F() (map[string][]*wire.Call, error) { return nil, nil }`: "F mentions wire.Call",
		`type Call = wire.Call`:                                           "Call mentions wire.Call",
		`type Calls = []wire.Call`:                                        "Calls mentions wire.Call",
		`type T struct{ C [2]wire.Call }`:                                 "T mentions wire.Call",
		`type T struct{ c wire.Call; N int }; func (T) m(wire.Call) {}`:   "",
		`type T struct{}; func (*T) M(f func(wire.Call)) {}`:              "T mentions wire.Call",
		`type t struct{}; func (t) M() chan wire.Call { return nil }`:     "",
		`type t struct{ C wire.Call }; func F() (x t) { return x }`:       "F mentions wire.Call",
		`type t = wire.Call; func F(t) {}`:                                "F mentions wire.Call",
		`type I interface{ M(wire.Call); m(wire.Call) }`:                  "I mentions wire.Call",
		`func F[T wire.Num](T) {}`:                                        "F mentions wire.Num",
		`type G[T any] struct{ X T }; var V G[wire.Call]`:                 "V mentions wire.Call",
		`var V wire.Call`:                                                 "V mentions wire.Call",
		`const C = wire.C; var v wire.Call; type T int; var V T = T(v.N)`: "",
	} {
		pkg, err := sources{
			module + "/internal/wire": `package wire; type Call struct{ N int }; type Num interface{ ~int }; const C = 1`,
			root:                      `package api; import "` + module + `/internal/wire"; type _ wire.Call; ` + decl,
		}.Import(root)
		if err != nil {
			t.Errorf("%s: %v", decl, err)
			continue
		}
		if got := strings.Join(leaks(pkg), "\n"); want == "" && got != "" || !strings.Contains(got, want) {
			t.Errorf("%s: found %q, want %q", decl, got, want)
		}
	}
}
