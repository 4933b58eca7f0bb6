package testbuild

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// status is the result of tests.
type status func() int

func (s status) Run() int { return s() }

// TestSet: programs are built once, and removed after the tests.
func TestSet(t *testing.T) {
	builds := 0
	set := &Set{Build: func(dir string) error {
		builds++
		return os.WriteFile(filepath.Join(dir, "program"), nil, 0o700)
	}}
	got := set.Around(status(func() int {
		first, again := set.Dir(t), set.Dir(t)
		if _, err := os.Stat(filepath.Join(first, "program")); err != nil || first != again {
			t.Errorf("the programs are in %s, then in %s: %v", first, again, err)
		}
		return 3
	})).Run()
	if got != 3 || builds != 1 {
		t.Errorf("status %d after %d builds, want 3 after 1", got, builds)
	}
	if _, err := os.Stat(set.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s after the tests: %v, want that it does not exist", set.dir, err)
	}
}

func TestGo(t *testing.T) {
	if err := Go("version"); err != nil {
		t.Error(err)
	}
	if err := Go("build", "./no/such/package"); err == nil || !strings.Contains(err.Error(), "go build ./no/such/package: exit status 1\n") || !strings.Contains(err.Error(), "no/such/package: directory not found") {
		t.Errorf("error %v, want one with the output", err)
	}
}
