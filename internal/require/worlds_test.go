package require

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestWorlds(t *testing.T) {
	if got := slices.Collect(Worlds("NUMBER_OF_WORLDS", 3)); !slices.Equal(got, []uint64{0, 1, 2}) {
		t.Errorf("a short run has the seeds %v", got)
	}
	t.Setenv("NUMBER_OF_WORLDS", "2")
	t.Setenv("FIRST", "7")
	if got := slices.Collect(Worlds("NUMBER_OF_WORLDS", 3)); !slices.Equal(got, []uint64{7, 8}) {
		t.Errorf("two worlds from 7 on have the seeds %v", got)
	}
}

func TestReport(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report")
	t.Setenv("REPORT", path)
	Report(t, "text")
	if got, err := os.ReadFile(path); err != nil || string(got) != "text" {
		t.Errorf("the file has %q, %v", got, err)
	}
}
