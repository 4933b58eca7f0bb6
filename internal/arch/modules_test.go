package arch

import (
	"fmt"
	"strings"
	"testing"
)

// A dependency is a package of others, and who may import it. What is imported
// by few can be replaced.
type dependency struct {
	path  string
	in    string // patterns of packages
	tests string // patterns of packages whose tests may, too
	why   string
}

// dependencies are all that the main module has. The modules below it, such as
// bench, have their own.
func dependencies() []dependency {
	const (
		command = "only the command talks to people; programs that use the library should not carry it"
		tests   = "it is for tests, and nothing that users build should need it"
	)
	return []dependency{
		{"github.com/quic-go/quic-go", "transport/quic", ". transport/sim", "QUIC is one transport among several"},
		{"github.com/caarlos0/env/v11", "internal/settings", "", "only the root package reads the environment, through one package; below it, settings are values"},
		{"go.etcd.io/raft/v3", "internal/raftlog", "test/attack", "how seeds agree is the matter of one package"},
		{"google.golang.org/protobuf/proto", "internal/raftlog", "test/attack", "it is how raft writes its messages; ours are those of internal/wire"},
		{"go.etcd.io/bbolt", "internal/raftlog", "", "what seeds agree on is kept by one package"},
		{"golang.org/x/tools", "tools/...", "", "only tools look at source; they have a module of their own"},
		{"golang.org/x/sys/cpu", "internal/kernel", "", "only the kernels choose code by what the processor can do"},
		{"github.com/mmcloughlin/avo", "internal/kernel/_asm/...", "", "what writes assembly is not part of what users build: it has a module of its own"},
		{"golang.org/x/sys", "transport/... internal/dl internal/host internal/testhost internal/spin cmd/...", "test/cluster test/attack", "system calls belong to what touches the system"},
		{"github.com/spf13/cobra", "cmd/...", "", command},
		{"github.com/schollz/progressbar/v3", "cmd/...", "", command},
		{"github.com/fatih/color", "cmd/...", "", command},
		{"github.com/dustin/go-humanize", "cmd/...", "", command},
		{"golang.org/x/term", "cmd/...", "", command},
		{"gonum.org/v1/plot", "cmd/...", "", command},
		{"github.com/rogpeppe/go-internal/testscript", "", "cmd/...", tests},
		{"pgregory.net/rapid", "", "./...", tests},
		{"go.uber.org/goleak", "transport/transporttest device/devicetest", "./...", tests},
	}
}

// checkDependencies finds imports of other modules that are not on the list,
// and of C.
func checkDependencies(tr *tree) (problems []string) {
	for _, f := range tr.files {
		for _, imp := range f.imports {
			if imp == "C" {
				problems = append(problems, fmt.Sprintf("%s imports C: a program with cgo is no longer static, and cannot be cross-built", f.path))
			}
			if why := refuses(f, imp); why != "" {
				problems = append(problems, fmt.Sprintf("%s imports %s: %s", f.path, imp, why))
			}
		}
	}
	return problems
}

// refuses says why a file must not import a package of another module.
func refuses(f *file, imp string) (why string) {
	first, _, _ := strings.Cut(imp, "/")
	if _, ours := ourDir(imp); ours || !strings.Contains(first, ".") || covers("bench/...", f.dir) {
		return ""
	}
	for _, d := range dependencies() {
		if imp != d.path && !strings.HasPrefix(imp, d.path+"/") {
			continue
		}
		if coversAny(strings.Fields(d.in), f.dir) || f.test && (d.tests == "./..." || coversAny(strings.Fields(d.tests), f.dir)) {
			return ""
		}
		return d.why
	}
	return "every dependency is a decision; if this one is worth it, give it a line in internal/arch that says who may import it"
}

func TestDependencies(t *testing.T) { report(t, checkDependencies(load(t))) }

func TestDependenciesFinds(t *testing.T) {
	for name, test := range map[string]struct {
		file, imp string
		want      []string
	}{
		"std":                  {"internal/plan/a.go", "go/ast", nil},
		"quic where it may":    {"transport/quic/a.go", "github.com/quic-go/quic-go", nil},
		"quic in a test":       {"transport/sim/a_test.go", "github.com/quic-go/quic-go", nil},
		"quic elsewhere":       {"transport/sim/a.go", "github.com/quic-go/quic-go/logging", []string{"QUIC is one transport"}},
		"unlisted":             {"cmd/nexar/a.go", "github.com/stretchr/testify", []string{"every dependency is a decision"}},
		"test only":            {"internal/link/a.go", "go.uber.org/goleak", []string{"it is for tests"}},
		"cgo":                  {"transport/shm/a.go", "C", []string{"no longer static"}},
		"a name that is alike": {"cmd/nexar/a.go", "github.com/fatih/colors", []string{"every dependency is a decision"}},
	} {
		t.Run(name, func(t *testing.T) {
			expect(t, checkDependencies(parse(t, map[string]string{
				test.file: fmt.Sprintf("package p; import _ %q", test.imp),
			})), test.want...)
		})
	}
}
