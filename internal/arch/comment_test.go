package arch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// checkPackageComments finds packages without exactly one package comment, which may be in a test if the package has tests
// alone. go doc concatenates several.
func checkPackageComments(tr *tree) (problems []string) {
	for _, dir := range tr.dirs() {
		var with, withTests []string
		code := false
		for _, f := range tr.in(dir) {
			code = code || !f.test
			if f.ast.Doc == nil || strings.TrimSpace(f.ast.Doc.Text()) == "" {
				continue
			}
			if withTests = append(withTests, f.path); !f.test {
				with = append(with, f.path)
			}
		}
		if !code {
			with = withTests
		}
		if len(with) != 1 {
			problems = append(problems, fmt.Sprintf("%s: %d package comments %q, want one: it names the main functions, and then guarantees, errors and concurrency", dir, len(with), with))
		}
	}
	return problems
}

// promises matches comments that announce changes. A comment states a limit as a fact.
func promises() *regexp.Regexp {
	return regexp.MustCompile(`\bTODO\b|\bFIXME\b|\bXXX\b|\bHACK\b|(?i)\bfor now\b|\bnot implemented\b|\bsimplified\b`)
}

func checkPromises(tr *tree) (problems []string) {
	for _, f := range tr.files {
		for _, group := range f.ast.Comments {
			for _, c := range group.List {
				if word := promises().FindString(c.Text); word != "" {
					problems = append(problems, fmt.Sprintf("%s: %q: finish the code, or state the limit as a fact", tr.at(c), word))
				}
			}
		}
	}
	return problems
}

func TestPackageComments(t *testing.T) { report(t, checkPackageComments(load(t))) }

func TestPromises(t *testing.T) { report(t, checkPromises(load(t))) }

func TestPromisesInDocs(t *testing.T) {
	for _, name := range documents(t) {
		text, err := os.ReadFile(filepath.Join(rootDir(t), name))
		if err != nil {
			t.Fatal(err)
		}
		if word := promises().Find(text); word != nil {
			t.Errorf("%s: %q: finish the code, or state the limit as a fact", name, word)
		}
	}
}

func TestPackageCommentsFinds(t *testing.T) {
	const doc = "// Package p is.\npackage p\n"
	for name, test := range map[string]struct {
		sources map[string]string
		want    []string
	}{
		"one":        {map[string]string{"p/a.go": doc, "p/b.go": "package p\n"}, nil},
		"none":       {map[string]string{"p/a.go": "// A license.\n\npackage p\n"}, []string{"0 package comments"}},
		"two":        {map[string]string{"p/a.go": doc, "p/b.go": doc}, []string{"2 package comments"}},
		"tests only": {map[string]string{"p/a_test.go": doc, "p/b_test.go": "package p\n"}, nil},
		"bare tests": {map[string]string{"p/a_test.go": "package p\n"}, []string{"0 package comments"}},
		"directive":  {map[string]string{"p/a.go": "//go:build linux\n\npackage p\n", "p/b.go": doc}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, checkPackageComments(parse(t, test.sources)), test.want...)
		})
	}
}

func TestPromisesFinds(t *testing.T) {
	expect(t, checkPromises(parse(t, map[string]string{
		"p/a.go": "package p\n\n// Foreseen for nowhere.\nvar x = \"TO\" + \"DO\" // FIX" + "ME: later\n",
	})), "p/a.go:4")
}
