package command

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testbuild"
)

// In a bare chroot, without /proc and /dev, the command works, and its errors name the missing file.
func TestBareChroot(t *testing.T) {
	require.Root(t)
	testbuild.Static(t)
	root := t.TempDir()
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", filepath.Join(root, "nexar"), "../../cmd/nexar")
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS="+os.Getenv("GOFLAGS")+" -buildvcs=false")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if err := os.WriteFile(filepath.Join(root, "script"), []byte("#!/no/such/shell\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		ok   bool
		want string
	}{
		{[]string{"run", "-n", "2", "--", "/nexar", "bench", "--op", "barrier", "--iters", "3"}, true, "0 wrong elements"},
		{[]string{"bench", "-n", "2", "--op", "barrier", "--iters", "3"}, true, "0 wrong elements"},
		{[]string{"run", "--", "/missing"}, false, `program "/missing" was not found`},
		{[]string{"run", "--", "script"}, false, `program "script" was not found in $PATH; for the file in this directory, say ./script`},
		{[]string{"run", "--", "/script"}, false, `program "/script" exists, but its interpreter or dynamic loader does not`},
	} {
		cmd := exec.Command("/nexar", test.args...)
		cmd.Dir, cmd.Env = "/", []string{"PATH=/bin"}
		cmd.Stdin, _ = os.Open(os.DevNull)
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		out, err := cmd.CombinedOutput()
		if (err == nil) != test.ok || !strings.Contains(string(out), test.want) {
			t.Errorf("nexar %q: %v, want %q in\n%s", test.args, err, test.want, out)
		}
	}
}
