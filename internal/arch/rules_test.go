package arch

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// ruleFiles returns the patterns of files in .golangci.yml, relative to the root.
func ruleFiles(text string) (patterns []string) {
	for _, m := range regexp.MustCompile(`"!?\$\{config-path\}/([^"]+)"`).FindAllStringSubmatch(text, -1) {
		patterns = append(patterns, m[1])
	}
	return patterns
}

// rulePackages returns the directories of the packages of this repository in .golangci.yml.
func rulePackages(text string) (dirs []string) {
	for _, m := range regexp.MustCompile(regexp.QuoteMeta(module)+`/([\w/]+)`).FindAllStringSubmatch(text, -1) {
		dirs = append(dirs, strings.TrimSuffix(m[1], "/"))
	}
	return dirs
}

// matches reports whether a pattern of files covers the package in dir.
func matches(pattern, dir string) bool {
	base, tree := strings.CutSuffix(pattern, "/**")
	if !tree {
		base = path.Dir(pattern)
	}
	if n := strings.Count(base, "/") + 1; tree && strings.Count(dir, "/") >= n {
		dir = strings.Join(strings.Split(dir, "/")[:n], "/")
	}
	ok, _ := path.Match(base, dir)
	return ok
}

// checkRules finds packages without import rules, and rules for packages that do not
// exist.
func checkRules(tr *tree, rules string) (problems []string) {
	dirs, files := tr.dirs(), ruleFiles(rules)
	for _, dir := range dirs {
		if !slices.ContainsFunc(files, func(p string) bool { return p != "**" && matches(p, dir) }) {
			problems = append(problems, dir+": no list of rules in .golangci.yml covers it: list its permitted imports")
		}
	}
	exists := func(below string) bool {
		return slices.ContainsFunc(dirs, func(dir string) bool { return dir == below || strings.HasPrefix(dir, below+"/") })
	}
	for _, p := range files {
		if base, _, _ := strings.Cut(p, "*"); base != "" && !exists(strings.TrimSuffix(base, "/")) {
			problems = append(problems, p+": .golangci.yml has rules for files that do not exist")
		}
	}
	for _, dir := range rulePackages(rules) {
		if !exists(dir) {
			problems = append(problems, dir+": .golangci.yml allows a package that does not exist")
		}
	}
	slices.Sort(problems)
	return slices.Compact(problems)
}

// .golangci.yml has rules for every package, and only for packages that exist.
func TestRules(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(rootDir(t), ".golangci.yml"))
	if err != nil {
		t.Fatal(err)
	}
	report(t, checkRules(load(t), string(text)))
}

func TestRulesFinds(t *testing.T) {
	tr := parse(t, map[string]string{
		"a.go": "package nexar", "internal/plan/a.go": "package plan", "internal/engine/link/a.go": "package link",
		"transport/a.go": "package transport", "transport/quic/a.go": "package quic", "internal/util/a.go": "package util",
	})
	expect(t, checkRules(tr, `
files: ["${config-path}/**", "${config-path}/*.go", "${config-path}/internal/plan/**", "!${config-path}/**_test.go"]
files: ["${config-path}/internal/engine/**", "${config-path}/transport/*/**", "${config-path}/internal/gone/**"]
allow: [github.com/nexar-go/nexar$, github.com/nexar-go/nexar/internal/engine, github.com/nexar-go/nexar/internal/old$]`),
		"internal/gone/**: .golangci.yml has rules for files that do not exist",
		"internal/old: .golangci.yml allows a package that does not exist",
		"internal/util: no list", "transport: no list")
}
