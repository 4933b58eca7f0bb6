//go:build !race

package docs

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/simulate"
)

// TestCollectivesHaveEveryForm: each collective with a descriptor has a function, a Start form, both for vectors on devices, and a
// place in the table of the README.
func TestCollectivesHaveEveryForm(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	row := string(regexp.MustCompile(`(?m)^\| collectives \|.*$`).Find(readme))
	exported := make(map[string]bool)
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && !strings.HasSuffix(name, "_test.go") {
				exported[fn.Name.Name] = exported[fn.Name.Name] || fn.Recv == nil
			}
		}
	}
	onDevice, comm := reflect.TypeFor[nexar.DeviceComm](), reflect.TypeFor[*nexar.Comm]()
	for _, collective := range simulate.Collectives() {
		name := ""
		for word := range strings.SplitSeq(collective, "_") {
			name += strings.ToUpper(word[:1]) + word[1:]
		}
		if !strings.Contains(row, "`"+name+"`") {
			t.Errorf("the table of the README lacks %s", name)
		}
		for _, form := range []string{name, "Start" + name} {
			_, isMethod := comm.MethodByName(form)
			if !exported[form] && !isMethod {
				t.Errorf("package nexar lacks %s", form)
			}
			if _, ok := onDevice.MethodByName(form); !ok && collective != "barrier" {
				t.Errorf("DeviceComm lacks %s", form)
			}
		}
	}
}
