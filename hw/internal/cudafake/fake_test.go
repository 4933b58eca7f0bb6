//go:build linux

package cudafake_test

import (
	"os"
	"os/exec"
	"testing"

	"github.com/nexar-go/nexar/hw/internal/cudafake"
	"github.com/nexar-go/nexar/hw/internal/dl"
)

// TestBuildLeavesNoFile: a library can be opened by its path, also by other processes, and leaves no file behind.
func TestBuildLeavesNoFile(t *testing.T) {
	cudafake.New(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	path, err := cudafake.Build("answer", []byte("int answer(void) { return 42; }"))
	if err != nil {
		t.Fatal(err)
	}
	lib, err := dl.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var answer func() int32
	if err := lib.Func(&answer, "answer"); err != nil || answer() != 42 {
		t.Errorf("the library does not work: %v", err)
	}
	if out, err := exec.Command("head", "-c", "4", path).Output(); err != nil || string(out) != "\x7fELF" {
		t.Errorf("another process reads %q, %v", out, err)
	}
	if list, err := os.ReadDir(dir); err != nil || len(list) != 0 {
		t.Errorf("files that are left: %v, %v", list, err)
	}
}
