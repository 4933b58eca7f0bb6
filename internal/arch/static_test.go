package arch

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/internal/testbuild"
)

// maxCommandBytes bounds the command of a release.
const maxCommandBytes = 30_000_000

// The command of a release is linked statically, and so is every program that imports only the
// packages of the core: it runs in an empty container and on any distribution. It is also small.
func TestCommandIsStatic(t *testing.T) {
	testbuild.Static(t)
	bin := filepath.Join(t.TempDir(), "nexar")
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-o", bin, "./cmd/nexar")
	build.Dir = rootDir(t)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+runtime.GOARCH)
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the command: %v\n%s", err, out)
	}
	checkStatic(t, bin)
	info, err := os.Stat(bin)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("the command has %d bytes", info.Size())
	if info.Size() > maxCommandBytes {
		t.Errorf("the command has %d bytes, want at most %d", info.Size(), maxCommandBytes)
	}
}

// A program that imports neither the page nor metrics nor otel links nothing of them: no HTTP, and none of their libraries.
func TestLibraryLinksNoServer(t *testing.T) {
	list := exec.CommandContext(t.Context(), "go", "list", "-deps", ".", "./nexartest", "./simulate")
	list.Dir = rootDir(t)
	out, err := list.Output()
	packages := strings.Fields(string(out))
	if err != nil || !slices.Contains(packages, module+"/internal/engine") {
		t.Fatalf("go list: %d packages, %v", len(packages), err)
	}
	for _, p := range packages {
		if p == "net/http" || strings.HasPrefix(p, module+"/internal/page") || strings.HasPrefix(p, module+"/metrics") || strings.HasPrefix(p, module+"/otel") ||
			strings.Contains(p, "prometheus") || strings.Contains(p, "opentelemetry") {
			t.Errorf("the library links %s", p)
		}
	}
}

// checkStatic requires that the ELF binary asks for no interpreter and no library. One that asks for
// an interpreter is dynamically linked, whether or not cgo made it so.
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
