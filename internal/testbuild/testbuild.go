// Package testbuild builds the programs that the tests of a package run.
//
// A package has one [Set], and its TestMain passes the tests to [Set.Around]:
//
//	var programs = testbuild.Set{Build: func(dir string) error {
//		return testbuild.Go("build", "-o", dir, "../cmd/nexar")
//	}}
//
//	func TestMain(m *testing.M) { os.Exit(programs.Around(m).Run()) }
//
// The programs are built once, before the first test and its clock: on a busy machine with an empty cache that takes minutes.
// If only some tests were selected, the first that calls [Set.Dir] builds them.
package testbuild

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/require"
)

// limit is the longest time of a build. The go command ends a process of tests a minute after the limit of its tests, ten
// minutes by default, so after a longer build no time would be left for them.
const limit = 8 * time.Minute

// A Set is a directory with programs.
type Set struct {
	// Build builds the programs into an empty directory.
	Build func(dir string) error

	once sync.Once
	dir  string
	err  error
}

// Dir returns the directory of the programs. It fails t if they cannot be built.
func (s *Set) Dir(t testing.TB) string {
	t.Helper()
	if s.once.Do(s.build); s.err != nil {
		t.Fatal(s.err)
	}
	return s.dir
}

func (s *Set) build() {
	if s.dir, s.err = os.MkdirTemp("", "testbuild"); s.err == nil {
		s.err = s.Build(s.dir)
	}
}

// Around returns tests that run as those of m, after the programs have been built, and remove these at the end.
func (s *Set) Around(m interface{ Run() int }) *Tests { return &Tests{s, m} }

// Tests are the tests of a package that uses a [Set].
type Tests struct {
	set   *Set
	tests interface{ Run() int }
}

// Run runs the tests and returns their exit status.
func (t *Tests) Run() (status int) {
	flag.Parse()
	selected := func(name string) bool { return flag.Lookup(name).Value.String() != "" }
	if !selected("test.run") && !selected("test.list") {
		t.set.once.Do(t.set.build)
	}
	defer func() { _ = os.RemoveAll(t.set.dir) }()
	return t.tests.Run()
}

// Static is [require.Have] with the requirement "static", for tests that build a static program. If cgo is enabled, such a build
// compiles all packages once more, which takes minutes on a busy machine.
func Static(t testing.TB) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "env", "CGO_ENABLED").Output()
	require.Have(t, "static", err == nil && strings.TrimSpace(string(out)) == "0", "a static program would compile all packages again, without cgo: set CGO_ENABLED=0, as make does")
}

// Go runs the go command. The error has its output.
func Go(args ...string) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), limit, fmt.Errorf("not done after %v", limit))
	defer cancel()
	out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
}
