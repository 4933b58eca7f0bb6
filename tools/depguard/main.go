// Command depguard checks imports against the depguard rules in .golangci.yml.
//
//	depguard DIR
//
// golangci-lint checks the same rules, but only for the files of one platform. This command
// parses the files of all platforms, in a second. It prints the imports that are not
// allowed and exits with status 1 if there are any.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/OpenPeeDeeP/depguard/v2"
	"golang.org/x/tools/go/analysis"
	"gopkg.in/yaml.v3"
)

func main() {
	problems, err := check(filepath.Join(append(os.Args[1:], ".")...))
	if err != nil {
		fmt.Fprintf(os.Stderr, "depguard: %v\n", err)
		os.Exit(2)
	}
	for _, p := range problems {
		fmt.Println(p)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

// check returns the problems of the Go files in and below dir, by dir/.golangci.yml.
func check(dir string) (problems []string, err error) {
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	settings, err := readSettings(dir)
	if err != nil {
		return nil, err
	}
	analyzer, err := depguard.NewAnalyzer(&settings)
	if err != nil {
		return nil, err
	}
	pass := &analysis.Pass{Analyzer: analyzer, Fset: token.NewFileSet()}
	if pass.Files, err = parse(pass.Fset, dir); err != nil {
		return nil, err
	}
	pass.Report = func(d analysis.Diagnostic) {
		at := pass.Fset.Position(d.Pos)
		if name, err := filepath.Rel(dir, at.Filename); err == nil {
			at.Filename = name
		}
		problems = append(problems, fmt.Sprintf("%v: %s", at, d.Message))
	}
	_, err = analyzer.Run(pass)
	return problems, err
}

// readSettings reads the depguard rules, with ${config-path} replaced by dir.
func readSettings(dir string) (depguard.LinterSettings, error) {
	name := filepath.Join(dir, ".golangci.yml")
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	var config struct {
		Linters struct {
			Settings struct {
				Depguard struct {
					Rules map[string]struct {
						ListMode     string `yaml:"list-mode"`
						Files, Allow []string
						Deny         []struct{ Pkg, Desc string }
					}
				}
			}
		}
	}
	if err := yaml.Unmarshal(text, &config); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	rules := config.Linters.Settings.Depguard.Rules
	if len(rules) == 0 {
		return nil, fmt.Errorf("%s: no rules under linters.settings.depguard.rules", name)
	}
	settings := make(depguard.LinterSettings)
	for name, r := range rules {
		list := &depguard.List{ListMode: r.ListMode, Allow: r.Allow, Deny: make(map[string]string)}
		for _, f := range r.Files {
			list.Files = append(list.Files, strings.ReplaceAll(f, "${config-path}", filepath.ToSlash(dir)))
		}
		for _, d := range r.Deny {
			list.Deny[d.Pkg] = d.Desc
		}
		settings[name] = list
	}
	return settings, nil
}

// parse parses the imports of all Go files in and below dir.
func parse(fset *token.FileSet, dir string) (files []*ast.File, err error) {
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path != dir && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(path) != ".go":
			return nil
		}
		f, err := parser.ParseFile(fset, path, nil, parser.ImportsOnly)
		files = append(files, f)
		return err
	})
	return files, err
}
