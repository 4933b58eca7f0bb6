//go:build unix

package checkpoint_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/checkpoint"
	"github.com/nexar-go/nexar/nexartest"
)

// TestNoFile: Load refuses a pipe, a device and a folder in place of a file, and neither blocks nor reads for ever. It follows a link to the file.
func TestNoFile(t *testing.T) {
	for _, name := range []string{"rank-1", "manifest.json"} {
		for kind, put := range map[string]func(path string) error{
			"pipe":   func(path string) error { return syscall.Mkfifo(path, 0o644) },
			"device": func(path string) error { return os.Symlink("/dev/zero", path) },
			"folder": func(path string) error { return os.Mkdir(path, 0o755) },
			"loop":   func(path string) error { return os.Symlink(path, path) },
			"link":   func(path string) error { return os.Symlink(path+".moved", path) },
		} {
			t.Run(name+" "+kind, func(t *testing.T) {
				dir := t.TempDir()
				nexartest.Run(t, 2, func(t *testing.T, c *nexar.Comm) {
					must(t, open(t, c, dir).Save(t.Context(), 1, newState(c, 100).fill(1).items()...))
				})
				path := filepath.Join(dir, "step-1", name)
				must(t, os.Rename(path, path+".moved"))
				must(t, put(path))
				nexartest.Run(t, 2, func(t *testing.T, c *nexar.Comm) {
					_, err := open(t, c, dir).Load(t.Context(), newState(c, 100).items()...)
					switch {
					case kind == "link":
						must(t, err)
					case kind != "loop" && !errors.Is(err, checkpoint.ErrDamaged) || err == nil || !strings.Contains(err.Error(), name):
						t.Errorf("error %v, want ErrDamaged and %s", err, name)
					}
				})
			})
		}
	}
}
