package arch

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// The command is linked statically, and so is every program that imports only the packages of
// the core: it runs in an empty container and on any distribution. An ELF interpreter shows
// a dynamically linked binary, whether cgo or the linker is the cause.
func TestCommandIsStatic(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "nexar")
	build := exec.Command("go", "build", "-o", bin, "./cmd/nexar")
	build.Dir = rootDir(t)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+runtime.GOARCH)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the command: %v\n%s", err, out)
	}
	checkStatic(t, bin)
}

func checkStatic(t *testing.T, bin string) {
	t.Helper()
	f, err := elf.Open(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the command has an ELF interpreter: a package makes it dynamically linked")
		}
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		t.Fatal(err)
	}
	if len(libraries) > 0 {
		t.Errorf("the command needs the libraries %q", libraries)
	}
}
