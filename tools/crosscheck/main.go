// Command crosscheck type-checks packages and their tests for other platforms, and runs
// the platform-dependent analyzers of go vet.
//
//	crosscheck -C .. -platforms "darwin/arm64 windows/amd64" ./...
//
// Unlike go vet it compiles nothing. It type-checks all dependencies, including the standard
// library, from source and without the bodies of their functions, which takes a fraction
// of the time if the build cache is empty. It prints the problems and exits with status 1 if
// there are any.
package main

import (
	"flag"
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/checker"
	"golang.org/x/tools/go/analysis/passes/asmdecl"
	"golang.org/x/tools/go/analysis/passes/buildtag"
	"golang.org/x/tools/go/analysis/passes/directive"
	"golang.org/x/tools/go/analysis/passes/framepointer"
	"golang.org/x/tools/go/analysis/passes/shift"
	"golang.org/x/tools/go/analysis/passes/unsafeptr"
	"golang.org/x/tools/go/packages"
)

func main() {
	platforms := flag.String("platforms", "darwin/arm64 windows/amd64", "`platforms` to check, as GOOS/GOARCH, separated by spaces")
	dir := flag.String("C", ".", "`directory` of the module")
	flag.Parse()
	failed := false
	for _, platform := range strings.Fields(*platforms) {
		fmt.Println(platform)
		problems, err := check(*dir, platform, flag.Args())
		if err != nil {
			fmt.Fprintf(os.Stderr, "crosscheck: %s: %v\n", platform, err)
			os.Exit(2)
		}
		for _, p := range problems {
			failed = true
			fmt.Println(p)
		}
	}
	if failed {
		os.Exit(1)
	}
}

// analyzers returns the platform-dependent analyzers of go vet. They use no facts about
// dependencies, which would require type-checking the bodies of all functions.
func analyzers() []*analysis.Analyzer {
	return []*analysis.Analyzer{
		asmdecl.Analyzer, buildtag.Analyzer, directive.Analyzer, framepointer.Analyzer, shift.Analyzer, unsafeptr.Analyzer,
	}
}

// check type-checks and analyzes packages of the module in dir for a platform of the form
// GOOS/GOARCH. It returns the problems, and an error if the packages cannot be loaded.
func check(dir, platform string, patterns []string) (problems []string, err error) {
	goos, goarch, ok := strings.Cut(platform, "/")
	if !ok {
		return nil, fmt.Errorf("platform %q: want GOOS/GOARCH", platform)
	}
	pkgs, err := packages.Load(&packages.Config{
		Mode:  packages.LoadAllSyntax,
		Tests: true,
		Dir:   dir,
		Env:   append(os.Environ(), "GOOS="+goos, "GOARCH="+goarch, "CGO_ENABLED=0"),
	}, patterns...)
	if err != nil {
		return nil, err
	}
	// A package and its variant with tests report the same problems.
	seen := make(map[string]bool)
	add := func(problem string) {
		if !seen[problem] {
			seen[problem] = true
			problems = append(problems, problem)
		}
	}
	for _, p := range pkgs {
		for _, e := range p.Errors {
			add(e.Error())
		}
	}
	if len(problems) > 0 {
		return problems, nil
	}
	graph, err := checker.Analyze(analyzers(), pkgs, nil)
	if err != nil {
		return nil, err
	}
	for _, action := range graph.Roots {
		if action.Err != nil {
			return nil, fmt.Errorf("%v: %w", action, action.Err)
		}
		for _, d := range action.Diagnostics {
			add(fmt.Sprintf("%s: %s", action.Package.Fset.Position(d.Pos), d.Message))
		}
	}
	return problems, nil
}
