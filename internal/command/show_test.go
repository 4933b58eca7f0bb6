package command

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// TestProgressLines: without a terminal, a line names the next step every 10 s, and the time that is left.
func TestProgressLines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out, lines bytes.Buffer
		w, err := newShow(t.Context(), streams{out: &out, err: &lines}, "nexar bench", "")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 8 {
			w.progress(i, 8, "all_reduce", 64<<(10+i))
			time.Sleep(4 * time.Second)
		}
		const want = "nexar bench: all_reduce 512 KiB: 37 % after 12s, about 20s left\n" +
			"nexar bench: all_reduce 4 MiB: 75 % after 24s, about 8s left\n"
		if lines.String() != want || out.Len() > 0 {
			t.Errorf("lines\n%s%s, want\n%s", lines.String(), out.String(), want)
		}
	})
}
