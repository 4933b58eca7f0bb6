package checkpoint_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/checkpoint"
	"github.com/nexar-go/nexar/nexartest"
)

// TestReader: a program that reads the newest checkpoint does not disturb the one that is being written.
func TestReader(t *testing.T) {
	dir := t.TempDir()
	nexartest.Run(t, 2, func(t *testing.T, c *nexar.Comm) {
		s, held := open(t, c, dir), make(chan struct{})
		must(t, s.Save(t.Context(), 1, newState(c, 100).fill(1).items()...))
		s.Fail(func(_ string, f checkpoint.File) checkpoint.File { <-held; return f })
		must(t, s.Start(t.Context(), 2, newState(c, 100).fill(2).items()...))
		reader, got := open(t, c, dir), newState(c, 100)
		step, err := reader.Load(t.Context(), got.items()...)
		if must(t, err); step != 1 {
			t.Errorf("step %d, want 1", step)
		}
		got.want(t, c, 1)
		close(held)
		must(t, s.Wait())
	})
	if names := list(t, dir); !slices.Equal(names, []string{"step-1", "step-2"}) {
		t.Errorf("folders %v, want step-1 and step-2", names)
	}
}

// TestTaken: of two Savers of one folder, the last one writes. The other one gets an error that names it, also in the middle of a checkpoint, and leaves
// the folder as it is.
func TestTaken(t *testing.T) {
	dir := t.TempDir()
	nexartest.Run(t, 2, func(t *testing.T, c *nexar.Comm) {
		first, second, held := open(t, c, dir), open(t, c, dir), make(chan struct{})
		must(t, first.Save(t.Context(), 1, newState(c, 100).fill(1).items()...))
		first.Fail(func(_ string, f checkpoint.File) checkpoint.File { <-held; return f })
		must(t, first.Start(t.Context(), 2, newState(c, 100).fill(3).items()...))
		must(t, second.Save(t.Context(), 2, newState(c, 100).fill(2).items()...))
		close(held)
		for _, err := range []error{first.Wait(), first.Save(t.Context(), 3, newState(c, 100).fill(3).items()...)} {
			if !errors.Is(err, checkpoint.ErrTaken) || !strings.Contains(err.Error(), "process") {
				t.Errorf("%v, want ErrTaken and the process", err)
			}
		}
		must(t, c.Barrier(t.Context()))
		got := newState(c, 100)
		step, err := second.Load(t.Context(), got.items()...)
		if must(t, err); step != 2 {
			t.Errorf("step %d, want 2", step)
		}
		got.want(t, c, 2)
		must(t, second.Save(t.Context(), 3, newState(c, 100).fill(3).items()...))
	})
	if names := list(t, dir); !slices.Equal(names, []string{"step-2", "step-3"}) {
		t.Errorf("folders %v, want step-2 and step-3", names)
	}
}

// TestStepBefore: a training that begins anew in a folder with later checkpoints does not lose its own unnoticed.
func TestStepBefore(t *testing.T) {
	dir := t.TempDir()
	nexartest.Run(t, 2, func(t *testing.T, c *nexar.Comm) {
		s := open(t, c, dir)
		for _, step := range []int{100, 200} {
			must(t, s.Save(t.Context(), int64(step), newState(c, 100).fill(step).items()...))
		}
		err := s.Save(t.Context(), 5, newState(c, 100).fill(5).items()...)
		if err == nil || !strings.Contains(err.Error(), "has a checkpoint of step 200, want none after step 5") {
			t.Errorf("error %v, want one that names step 200", err)
		}
	})
	if names := list(t, dir); !slices.Equal(names, []string{"step-100", "step-200"}) {
		t.Errorf("folders %v, want those before", names)
	}
}

// TestValueOrVector: an item that is a value on one rank and a vector on another is an error.
func TestValueOrVector(t *testing.T) {
	dir := t.TempDir()
	nexartest.Run(t, 2, func(t *testing.T, c *nexar.Comm) {
		items := []checkpoint.Item{checkpoint.Value("x", 1)}
		if c.Rank() == 1 {
			items = []checkpoint.Item{checkpoint.Replicated("x", []float32{1, 2})}
		}
		err := open(t, c, dir).Save(t.Context(), 1, items...)
		if err == nil || !strings.Contains(err.Error(), `"x" is a value on rank 0 and a vector on rank 1`) {
			t.Errorf("error %v, want one that names x and rank 1", err)
		}
	})
}
