package api

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/nexartest"
)

// TestRankFile: a node writes its rank to the file of nexar run after joining and in each epoch, and changes no
// file of another length.
func TestRankFile(t *testing.T) {
	const unknown = "           \n"
	path := filepath.Join(t.TempDir(), "rank")
	t.Setenv("_NEXAR_RANK_FILE", path)
	write := func(content string) {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := func(when, content string) {
		t.Helper()
		if b, err := os.ReadFile(path); string(b) != content {
			t.Errorf("%s: the file has %q (%v), want %q", when, b, err, content)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		write(unknown)
		nexartest.New(t, 1)
		want("after Join", "          0\n")
	})
	synctest.Test(t, func(t *testing.T) {
		w := nexartest.New(t, 3)
		write(unknown)
		w.Start(func(ctx context.Context, n *nexar.Node) error {
			for c, err := range n.Epochs(ctx) {
				if err != nil || c.Size() == 2 {
					return err
				}
				for err == nil {
					err = c.Barrier(ctx)
				}
			}
			return nil
		})
		w.Kill(0)
		if errs := w.Wait(); errs[1] != nil || errs[2] != nil {
			t.Error(errs)
		}
		if b, err := os.ReadFile(path); err != nil || string(b) != "          0\n" && string(b) != "          1\n" {
			t.Errorf("after an epoch: the file has %q (%v), want rank 0 or 1 of its two nodes", b, err)
		}
	})
	for _, other := range []string{"", "text of the user\n"} {
		write(other)
		synctest.Test(t, func(t *testing.T) { nexartest.New(t, 1) })
		want("a file of another length", other)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) { nexartest.New(t, 1) })
	if _, err := os.Stat(path); err == nil {
		t.Error("a node has made the file")
	}
}
