//go:build linux

package arch

import (
	"cmp"
	"errors"
	"fmt"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// apiReport describes the exported declarations of packages, a line for each, by package and name. Names of parameters are
// left out, since callers do not depend on them.
func apiReport(list []*types.Package) string {
	var b strings.Builder
	list = slices.SortedFunc(slices.Values(list), func(a, b *types.Package) int { return strings.Compare(a.Path(), b.Path()) })
	for _, pkg := range list {
		fmt.Fprintf(&b, "\n# %s\n", pkg.Path())
		w := reporter{pkg: pkg}
		for _, name := range pkg.Scope().Names() {
			if obj := pkg.Scope().Lookup(name); obj.Exported() {
				w.object(obj)
			}
		}
		slices.SortFunc(w.lines, func(a, b string) int {
			return cmp.Or(strings.Compare(declaredName(a), declaredName(b)), strings.Compare(a, b))
		})
		for _, line := range w.lines {
			b.WriteString(line + "\n")
		}
	}
	return strings.TrimPrefix(b.String(), "\n")
}

// A reporter describes the declarations of a package.
type reporter struct {
	pkg   *types.Package
	lines []string
}

func (w *reporter) add(format string, args ...any) {
	w.lines = append(w.lines, fmt.Sprintf(format, args...))
}

func (w *reporter) typeString(t types.Type) string {
	return types.TypeString(t, func(of *types.Package) string {
		if of == w.pkg {
			return ""
		}
		return of.Name()
	})
}

func (w *reporter) object(obj types.Object) {
	switch obj := obj.(type) {
	case *types.Const:
		w.add("const %s %s = %s", obj.Name(), w.typeString(obj.Type()), obj.Val().ExactString())
	case *types.Var:
		w.add("var %s %s", obj.Name(), w.typeString(obj.Type()))
	case *types.Func:
		sig := obj.Signature()
		w.add("func %s%s%s", obj.Name(), w.typeParams(sig.TypeParams()), w.signature(sig))
	case *types.TypeName:
		w.typeName(obj)
	}
}

func (w *reporter) typeName(obj *types.TypeName) {
	named, ok := obj.Type().(*types.Named)
	if !ok {
		w.add("type %s = %s", obj.Name(), w.typeString(obj.Type().(*types.Alias).Rhs()))
		return
	}
	name := obj.Name()
	head := "type " + name + w.typeParams(named.TypeParams())
	switch t := named.Underlying().(type) {
	case *types.Struct:
		w.add("%s struct", head)
		for f := range t.Fields() {
			if f.Exported() {
				w.add("field %s.%s %s", name, f.Name(), w.typeString(f.Type()))
			}
		}
	case *types.Interface:
		w.interfaceType(head, name, t)
		return
	default:
		w.add("%s %s", head, w.typeString(t))
	}
	value := types.NewMethodSet(named)
	for m := range types.NewMethodSet(types.NewPointer(named)).Methods() {
		if !m.Obj().Exported() {
			continue
		}
		receiver := "*"
		if value.Lookup(w.pkg, m.Obj().Name()) != nil {
			receiver = ""
		}
		w.add("method (%s%s) %s%s", receiver, name, m.Obj().Name(), w.signature(m.Type().(*types.Signature)))
	}
}

// interfaceType describes an interface: a line with the names of all methods, which changes if one is added, and a line for
// each method.
func (w *reporter) interfaceType(head, name string, t *types.Interface) {
	if !t.IsMethodSet() {
		w.add("%s %s", head, w.typeString(t))
		return
	}
	var methods []string
	for m := range t.Methods() {
		if !m.Exported() {
			methods = append(methods, "unexported methods")
			continue
		}
		methods = append(methods, m.Name())
		w.add("method (%s) %s%s", name, m.Name(), w.signature(m.Signature()))
	}
	slices.Sort(methods)
	w.add("%s interface { %s }", head, strings.Join(slices.Compact(methods), ", "))
}

func (w *reporter) typeParams(list *types.TypeParamList) string {
	var params []string
	for p := range list.TypeParams() {
		params = append(params, p.Obj().Name()+" "+w.typeString(p.Constraint()))
	}
	if len(params) == 0 {
		return ""
	}
	return "[" + strings.Join(params, ", ") + "]"
}

func (w *reporter) signature(sig *types.Signature) string {
	tuple := func(t *types.Tuple) (list []string) {
		for v := range t.Variables() {
			list = append(list, w.typeString(v.Type()))
		}
		return list
	}
	params, results := tuple(sig.Params()), tuple(sig.Results())
	if sig.Variadic() {
		params[len(params)-1] = "..." + strings.TrimPrefix(params[len(params)-1], "[]")
	}
	text := "(" + strings.Join(params, ", ") + ")"
	switch len(results) {
	case 0:
		return text
	case 1:
		return text + " " + results[0]
	}
	return text + " (" + strings.Join(results, ", ") + ")"
}

// declared matches the type of a method, and the name, in a line of a report.
var declared = regexp.MustCompile(`^(?:const|var|func|type|field|method \(\*?(\w+)\)) ([\w.]+)`)

// declaredName returns the name in a line of a report, such as Comm.Size.
func declaredName(line string) string {
	m := declared.FindStringSubmatch(line)
	return strings.TrimPrefix(m[1]+"."+m[2], ".")
}

// unlisted returns the lines of the report before that are not in the report after, and whose names the changelog does not
// have in backquotes.
func unlisted(before, after, changelog string) (lines []string) {
	now := make(map[string]bool)
	pkg := ""
	each := func(report string, f func(line string)) {
		for line := range strings.SplitSeq(report, "\n") {
			if strings.HasPrefix(line, "# ") {
				pkg = line
			} else if line != "" {
				f(line)
			}
		}
	}
	each(after, func(line string) { now[pkg+line] = true })
	each(before, func(line string) {
		if now[pkg+line] {
			return
		}
		name := declaredName(line)
		if !strings.Contains(changelog, "`"+name+"`") && !strings.Contains(changelog, "`"+filepath.Base(pkg)+"."+name+"`") {
			lines = append(lines, line)
		}
	})
	return lines
}

// nextVersion returns the version of the first section of the changelog, and the text of this section.
func nextVersion(t *testing.T, changelog string) (version, section string) {
	t.Helper()
	_, text, _ := strings.Cut(changelog, "\n## ")
	section, _, _ = strings.Cut(text, "\n## ")
	heading, _, _ := strings.Cut(section, "\n")
	if version = regexp.MustCompile(`v\d+\.\d+\.\d+`).FindString(heading); version == "" {
		t.Fatalf("the first section of CHANGELOG.md is %q, want a version in it, such as v0.1.0", heading)
	}
	return version, section
}

// lastBefore returns the greatest of the versions that is less than version, "" if there is none.
func lastBefore(version string, versions []string) (last string) {
	number := func(v string) (n [3]int) {
		_, _ = fmt.Sscanf(v, "v%d.%d.%d", &n[0], &n[1], &n[2]) // The names have this form.
		return n
	}
	less := func(a, b string) bool {
		x, y := number(a), number(b)
		return slices.Compare(x[:], y[:]) < 0
	}
	for _, v := range versions {
		if less(v, version) && (last == "" || less(last, v)) {
			last = v
		}
	}
	return last
}

// TestAPIReport: docs/api has the exported declarations of the next version. What the last version had and this one has
// not, or has with another type, is named in the changelog. API=write ("make api") writes the report.
func TestAPIReport(t *testing.T) {
	root := rootDir(t)
	changelog, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	if err != nil {
		t.Fatal(err)
	}
	version, section := nextVersion(t, string(changelog))
	report := apiReport(publicPackages(t))
	dir := filepath.Join(root, "docs", "api")
	file := filepath.Join(dir, version+".txt")
	if os.Getenv("API") == "write" {
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(file, []byte(report), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if string(have) != report {
		added, removed := unlisted(report, string(have), ""), unlisted(string(have), report, "")
		t.Errorf("docs/api/%s.txt differs from the exported declarations. It lacks\n\t%s\nand has in excess\n\t%s\n"+
			"\"make api\" writes the file; CHANGELOG.md must name what users have to change",
			version, strings.Join(added, "\n\t"), strings.Join(removed, "\n\t"))
	}
	files, err := filepath.Glob(filepath.Join(dir, "v*.txt"))
	if err != nil {
		t.Fatal(err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".txt")
	}
	last := lastBefore(version, files)
	if last == "" {
		return // the first version
	}
	before, err := os.ReadFile(filepath.Join(dir, last+".txt"))
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range unlisted(string(before), report, section) {
		t.Errorf("%s had %q, and %s has not: name it in backquotes in its section of CHANGELOG.md", last, line, version)
	}
}

func TestAPIReportFinds(t *testing.T) {
	source := func(decl string) string {
		pkg, err := sources{"example.com/p": "package p\n" + decl}.Import("example.com/p")
		if err != nil {
			t.Fatalf("%s: %v", decl, err)
		}
		return apiReport([]*types.Package{pkg})
	}
	for before, tests := range map[string]map[string]string{ // by the declarations after: the line that must be named
		"func F(a int) error { return nil }": {
			"func F(b int) error { return nil }":           "",
			"func F(b ...int) error { return nil }":        "func F(int) error",
			"func F(a int) (int, error) { return 0, nil }": "func F(int) error",
			"func f(a int) error { return nil }":           "func F(int) error",
		},
		"type T struct{ A, b int }": {"type T struct{ A, B int }": "", "type T struct{ A uint }": "field T.A int", "type T int": "type T struct\nfield T.A int"},
		"type T struct{}; func (*T) M() {}; func (*T) m() {}": {
			"type T struct{}; func (T) M() {}":                       "method (*T) M()",
			"type t struct{}; func (*t) M() {}; type T struct{ *t }": "method (*T) M()",
			"type T struct{}": "method (*T) M()",
		},
		"type I interface{ M(x int) }":   {"type I interface{ M(int); N() }": "type I interface { M }", "type I interface{ M() }": "method (I) M(int)"},
		"func F[T int|string](x T) {}":   {"func F[T int|string|bool](x T) {}": "func F[T int | string](T)"},
		"const C = 1; var V = \"\"":      {"const C = 2; var V string": "const C untyped int = 1"},
		"type A = []int; type B []int":   {"type A = []uint; type B []uint": "type A = []int\ntype B []int"},
		"type E interface{ ~int|~uint }": {"type E interface{ ~int }": "type E interface{~int | ~uint}"},
	} {
		for after, want := range tests {
			if got := strings.Join(unlisted(source(before), source(after), "no name in `backquotes`"), "\n"); got != want {
				t.Errorf("from %s to %s: found %q, want %q", before, after, got, want)
			}
		}
	}
	for _, changelog := range []string{"`T.M` has gone", "`p.T.M` has gone"} {
		if got := unlisted(source("type T int; func (T) M() {}"), source("type T int"), changelog); got != nil {
			t.Errorf("%q: found %q, want nothing", changelog, got)
		}
	}
	if got := lastBefore("v0.10.0", []string{"v0.1.0", "v0.9.3", "v0.9.12", "v0.10.0", "v1.0.0"}); got != "v0.9.12" {
		t.Errorf("the last version before v0.10.0 is %q, want v0.9.12", got)
	}
}
