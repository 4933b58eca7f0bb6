package checkpoint_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/checkpoint"
	"github.com/nexar-go/nexar/nexartest"
)

// A state is the state that a rank saves and loads.
type state struct {
	whole    []float32 // the same on all ranks
	own      []int64   // the elements from offset on of a vector of total
	offset   int
	position struct{ Epoch, Used int }
}

const total = 1000

func newState(c *nexar.Comm, wholes int) *state {
	s := &state{whole: make([]float32, wholes)}
	s.offset = total * c.Rank() / c.Size()
	s.own = make([]int64, total*(c.Rank()+1)/c.Size()-s.offset)
	return s
}

// fill sets the state of a step.
func (s *state) fill(step int) *state {
	for i := range s.whole {
		s.whole[i] = float32(i*7 + step)
	}
	for i := range s.own {
		s.own[i] = int64(s.offset+i)*3 + int64(step)
	}
	s.position.Epoch, s.position.Used = step, 2*step
	return s
}

func (s *state) items() []checkpoint.Item {
	return []checkpoint.Item{
		checkpoint.Replicated("whole", s.whole), checkpoint.Sharded("own", s.own, s.offset, total), checkpoint.Value("position", &s.position),
	}
}

func (s *state) want(t *testing.T, c *nexar.Comm, step int) {
	t.Helper()
	want := newState(c, len(s.whole)).fill(step)
	if !slices.Equal(s.whole, want.whole) || !slices.Equal(s.own, want.own) || s.position != want.position {
		t.Errorf("rank %d of %d has not the state of step %d", c.Rank(), c.Size(), step)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, c *nexar.Comm, dir string) *checkpoint.Saver {
	t.Helper()
	s, err := checkpoint.New(t.Context(), c, dir, checkpoint.Config{})
	must(t, err)
	t.Cleanup(func() { s.Close() })
	return s
}

// TestReshard: a checkpoint of some ranks is read by any other number of them.
func TestReshard(t *testing.T) {
	for _, wholes := range []int{0, 1, 5, 1 << 19} { // the last one has several pieces of 1 MiB a part
		for _, writers := range []int{1, 3} {
			dir := filepath.Join(t.TempDir(), "job")
			nexartest.Run(t, writers, func(t *testing.T, c *nexar.Comm) {
				s := open(t, c, dir)
				step, err := s.Load(t.Context(), newState(c, wholes).items()...)
				if must(t, err); step != -1 {
					t.Errorf("step %d of an empty folder, want -1", step)
				}
				must(t, s.Save(t.Context(), 5, newState(c, wholes).fill(5).items()...))
			})
			for _, readers := range []int{1, 2, 3, 5} {
				nexartest.Run(t, readers, func(t *testing.T, c *nexar.Comm) {
					got := newState(c, wholes)
					step, err := open(t, c, dir).Load(t.Context(), got.items()...)
					if must(t, err); step != 5 {
						t.Errorf("step %d, want 5", step)
					}
					got.want(t, c, 5)
				})
			}
		}
	}
}

// TestAsynchronous: the state may change as soon as Start has returned, and the newest checkpoints are kept.
func TestAsynchronous(t *testing.T) {
	dir := t.TempDir()
	nexartest.Run(t, 3, func(t *testing.T, c *nexar.Comm) {
		s, held := open(t, c, dir), make(chan struct{})
		s.Fail(func(_ string, f checkpoint.File) checkpoint.File { <-held; return f })
		st := newState(c, 100).fill(1)
		must(t, s.Start(t.Context(), 1, st.items()...))
		st.fill(2)
		must(t, c.Barrier(t.Context())) // the communicator is free while files are written
		close(held)
		must(t, s.Wait())
		got := newState(c, 100)
		_, err := s.Load(t.Context(), got.items()...)
		must(t, err)
		got.want(t, c, 1)
		for step := 2; step < 5; step++ {
			must(t, s.Start(t.Context(), int64(step), st.fill(step).items()...))
		}
		must(t, s.Wait())
	})
	if names := list(t, dir); !slices.Equal(names, []string{"step-3", "step-4"}) {
		t.Errorf("folders %v, want the newest two", names)
	}
}

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, e := range entries {
		if e.Name() != checkpoint.WriterName {
			names = append(names, e.Name())
		}
	}
	return names
}

// A limited file fails once so many bytes have been written to all of its kind.
type limited struct {
	checkpoint.File
	left *atomic.Int64
}

func (f limited) Write(b []byte) (int, error) {
	if left := f.left.Add(-int64(len(b))); left < 0 {
		n, _ := f.File.Write(b[:max(0, len(b)+int(left))])
		return n, syscall.ENOSPC
	}
	return f.File.Write(b)
}

// TestFullDisk: the disk of one rank is full after any number of bytes. All ranks get the error, which names the rank; the checkpoint before stays,
// nothing else does, and the next one succeeds.
func TestFullDisk(t *testing.T) {
	for _, room := range []int64{0, 10, 300, 2700} {
		for _, rank := range []int{0, 2} {
			dir := t.TempDir()
			nexartest.Run(t, 3, func(t *testing.T, c *nexar.Comm) {
				s, st := open(t, c, dir), newState(c, 100)
				must(t, s.Save(t.Context(), 1, st.fill(1).items()...))
				var left atomic.Int64
				left.Store(room)
				isFull := true
				s.Fail(func(_ string, f checkpoint.File) checkpoint.File {
					if isFull && c.Rank() == rank {
						return limited{f, &left}
					}
					return f
				})
				err := s.Save(t.Context(), 2, st.fill(2).items()...)
				e, ok := errors.AsType[*checkpoint.RankError](err)
				if !ok || e.Rank != rank || !strings.Contains(err.Error(), "no space left on device") || (c.Rank() == rank) != errors.Is(err, syscall.ENOSPC) {
					if room < 2700 || rank == 0 { // the manifest is longer
						t.Errorf("room for %d bytes on rank %d: error %v", room, rank, err)
					}
				}
				must(t, c.Barrier(t.Context()))
				if names := list(t, dir); err != nil && !slices.Equal(names, []string{"step-1"}) {
					t.Errorf("folders %v after the failure, want step-1", names)
				}
				must(t, c.Barrier(t.Context()))
				isFull = false
				must(t, s.Save(t.Context(), 3, st.fill(3).items()...))
				got := newState(c, 100)
				_, err = s.Load(t.Context(), got.items()...)
				must(t, err)
				got.want(t, c, 3)
			})
		}
	}
}

// A noted file notes whether Sync was called after the last Write.
type noted struct {
	checkpoint.File
	isDurable *atomic.Bool
}

func (f noted) Write(b []byte) (int, error) {
	f.isDurable.Store(false)
	return f.File.Write(b)
}

func (f noted) Sync() error {
	f.isDurable.Store(true)
	return f.File.Sync()
}

// TestDurable: all files are on the disk when Save returns, also if the host loses power then.
func TestDurable(t *testing.T) {
	dir := t.TempDir()
	nexartest.Run(t, 2, func(t *testing.T, c *nexar.Comm) {
		s, files := open(t, c, dir), make(map[string]*atomic.Bool)
		s.Fail(func(path string, f checkpoint.File) checkpoint.File {
			files[filepath.Base(path)] = new(atomic.Bool)
			return noted{f, files[filepath.Base(path)]}
		})
		must(t, s.Save(t.Context(), 1, newState(c, 100).fill(1).items()...))
		if len(files) != 2-c.Rank() {
			t.Errorf("rank %d has written %d files, want its own and on rank 0 the manifest", c.Rank(), len(files))
		}
		for name, isDurable := range files {
			if !isDurable.Load() {
				t.Errorf("rank %d has not called Sync after it wrote %s", c.Rank(), name)
			}
		}
	})
}

// TestLongError: an error is as long as others can be told, on all ranks.
func TestLongError(t *testing.T) {
	nexartest.Run(t, 2, func(t *testing.T, c *nexar.Comm) {
		name := strings.Repeat("long", 1000)
		err := open(t, c, t.TempDir()).Save(t.Context(), 1, checkpoint.Replicated(name, []float32{1}), checkpoint.Replicated(name, []float32{1}))
		e, ok := errors.AsType[*checkpoint.RankError](err)
		if !ok || len(e.Text) > 2048 || !strings.HasPrefix(e.Text, `item "longlong`) {
			t.Errorf("error %v, want the first 2 KiB of one", err)
		}
	})
}

// TestCrash: New removes the files of a process that was killed while it wrote, and Load reads the checkpoint before, also if it was being replaced.
func TestCrash(t *testing.T) {
	for _, leave := range []func(dir string) error{
		func(dir string) error {
			return os.CopyFS(filepath.Join(dir, checkpoint.PartialPrefix+"step-2"), os.DirFS(filepath.Join(dir, "step-1")))
		},
		func(dir string) error {
			return os.Rename(filepath.Join(dir, "step-1"), filepath.Join(dir, checkpoint.OldPrefix+"step-1"))
		},
		func(dir string) error {
			return os.CopyFS(filepath.Join(dir, checkpoint.OldPrefix+"step-1"), os.DirFS(filepath.Join(dir, "step-1")))
		},
	} {
		dir := t.TempDir()
		nexartest.Run(t, 2, func(t *testing.T, c *nexar.Comm) {
			must(t, open(t, c, dir).Save(t.Context(), 1, newState(c, 100).fill(1).items()...))
		})
		must(t, leave(dir))
		nexartest.Run(t, 2, func(t *testing.T, c *nexar.Comm) {
			s, got := open(t, c, dir), newState(c, 100)
			_, err := s.Load(t.Context(), got.items()...)
			must(t, err)
			got.want(t, c, 1)
			must(t, s.Save(t.Context(), 1, got.fill(7).items()...)) // the same step again
			_, err = s.Load(t.Context(), got.items()...)
			must(t, err)
			got.want(t, c, 7)
		})
		if names := list(t, dir); !slices.Equal(names, []string{"step-1"}) {
			t.Errorf("folders %v, want step-1", names)
		}
	}
}

// TestKilledWhileItRemoves: a process was killed while it removed an old checkpoint. The next one is written, and the rest is removed.
func TestKilledWhileItRemoves(t *testing.T) {
	dir := t.TempDir()
	nexartest.Run(t, 2, func(t *testing.T, c *nexar.Comm) {
		s := open(t, c, dir)
		for step := range 2 {
			must(t, s.Save(t.Context(), int64(step), newState(c, 100).fill(step).items()...))
		}
		if must(t, c.Barrier(t.Context())); c.Rank() == 0 {
			must(t, os.Remove(filepath.Join(dir, "step-0", "manifest.json")))
		}
		must(t, s.Save(t.Context(), 2, newState(c, 100).fill(2).items()...))
	})
	if names := list(t, dir); !slices.Equal(names, []string{"step-1", "step-2"}) {
		t.Errorf("folders %v, want step-1 and step-2", names)
	}
}

// TestRefused: files that are damaged, truncated, missing, foreign or newer are refused, by their names, on all ranks.
func TestRefused(t *testing.T) {
	change := func(name string, f func(b []byte) []byte) func(dir string) error {
		return func(dir string) error {
			path := filepath.Join(dir, "step-1", name)
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return os.WriteFile(path, f(b), 0o644)
		}
	}
	replace := func(old, with string) func([]byte) []byte {
		return func(b []byte) []byte { return []byte(strings.Replace(string(b), old, with, 1)) }
	}
	for name, test := range map[string]struct {
		damage func(dir string) error
		want   error
		text   string
	}{
		"one bit":          {change("rank-1", func(b []byte) []byte { b[len(b)-9] ^= 4; return b }), checkpoint.ErrDamaged, "rank-1"},
		"truncated":        {change("rank-1", func(b []byte) []byte { return b[:len(b)-1] }), checkpoint.ErrDamaged, "rank-1"},
		"empty":            {change("rank-0", func(b []byte) []byte { return nil }), checkpoint.ErrDamaged, "rank-0"},
		"missing":          {func(dir string) error { return os.Remove(filepath.Join(dir, "step-1", "rank-1")) }, checkpoint.ErrDamaged, "rank-1"},
		"foreign file":     {change("rank-1", func(b []byte) []byte { return append([]byte("PK"), b...) }), checkpoint.ErrDamaged, "rank-1"},
		"no manifest":      {func(dir string) error { return os.Remove(filepath.Join(dir, "step-1", "manifest.json")) }, checkpoint.ErrForeign, "manifest.json"},
		"half a manifest":  {change("manifest.json", func(b []byte) []byte { return b[:len(b)/2] }), checkpoint.ErrDamaged, "manifest.json"},
		"foreign manifest": {change("manifest.json", replace("nexar checkpoint", "other")), checkpoint.ErrForeign, "manifest.json"},
		"newer":            {change("manifest.json", replace(`"version": 1`, `"version": 2`)), checkpoint.ErrNewer, "manifest.json"},
		"other step":       {change("manifest.json", replace(`"step": 1`, `"step": 2`)), checkpoint.ErrForeign, "step-1"},
		"other name":       {change("manifest.json", replace(`"whole"`, `"half"`)), checkpoint.ErrForeign, `no item "whole"`},
		"other type":       {change("manifest.json", replace(`"float32"`, `"float64"`)), checkpoint.ErrForeign, "float64"},
		"other length":     {change("manifest.json", replace(`"elements": 1000`, `"elements": 900`)), checkpoint.ErrDamaged, "manifest.json"},
		"a gap":            {change("manifest.json", replace(`"elements": 1000`, `"elements": 1001`)), checkpoint.ErrDamaged, "no part has element 1000"},
		"another folder":   {change("manifest.json", replace(`"file": "rank-1"`, `"file": "../rank-1"`)), checkpoint.ErrDamaged, "manifest.json"},
		"elements before":  {change("manifest.json", replace(`"from": 0`, `"from": -1`)), checkpoint.ErrDamaged, "manifest.json"},
		"negative part":    {change("manifest.json", replace(`"count": `, `"count": -`)), checkpoint.ErrDamaged, "manifest.json"},
		"no size":          {change("manifest.json", replace(`"size": 4`, `"size": 0`)), checkpoint.ErrDamaged, `100 elements of 0 bytes`},
		"negative length":  {change("manifest.json", replace(`"elements": 100`, `"elements": -100`)), checkpoint.ErrDamaged, "manifest.json"},
		"two items":        {change("manifest.json", replace(`"own"`, `"whole"`)), checkpoint.ErrDamaged, `two items "whole"`},
		"huge manifest":    {change("manifest.json", func(b []byte) []byte { return append(b, make([]byte, 64<<20)...) }), checkpoint.ErrForeign, "want at most 67108864"},
		"other byte order": {change("manifest.json", replace(`"byteOrder": "`, `"byteOrder": "other-`)), checkpoint.ErrForeign, "other-"},
		"swapped files": {func(dir string) error {
			zero, one, spare := filepath.Join(dir, "step-1", "rank-0"), filepath.Join(dir, "step-1", "rank-1"), filepath.Join(dir, "spare")
			return errors.Join(os.Rename(zero, spare), os.Rename(one, zero), os.Rename(spare, one))
		}, checkpoint.ErrDamaged, "rank-"},
		"bytes before": {change("manifest.json", replace(`"at": `, `"at": -`)), checkpoint.ErrDamaged, "manifest.json"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			nexartest.Run(t, 2, func(t *testing.T, c *nexar.Comm) {
				must(t, open(t, c, dir).Save(t.Context(), 1, newState(c, 100).fill(1).items()...))
			})
			must(t, test.damage(dir))
			nexartest.Run(t, 2, func(t *testing.T, c *nexar.Comm) {
				s := open(t, c, dir)
				step, err := s.Load(t.Context(), newState(c, 100).items()...)
				if step != -1 || !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) {
					t.Errorf("step %d, error %v, want an error %v with %q", step, err, test.want, test.text)
				}
				must(t, s.Save(t.Context(), 2, newState(c, 100).fill(2).items()...)) // the Saver can still be used
			})
		})
	}
}

// TestItems: a call with other items than those of another rank, or invalid ones, is an error on all ranks.
func TestItems(t *testing.T) {
	one := []float32{1}
	for name, test := range map[string]struct {
		step  int64
		items func(rank int) []checkpoint.Item
		want  string
	}{
		"step": {-1, func(int) []checkpoint.Item { return nil }, "step -1, must not be negative"},
		"name": {1, func(rank int) []checkpoint.Item {
			return []checkpoint.Item{checkpoint.Replicated(fmt.Sprint("w", rank), one)}
		},
			`rank 0 has step 1, "w0", and rank 1 has step 1, "w1"`},
		"twice": {1, func(int) []checkpoint.Item {
			return []checkpoint.Item{checkpoint.Replicated("w", one), checkpoint.Replicated("w", one)}
		}, `item "w": names must be different`},
		"outside": {1, func(rank int) []checkpoint.Item { return []checkpoint.Item{checkpoint.Sharded("w", one, rank, 1)} },
			`rank 1: item "w": 1 elements from 1 on are not within a vector of 1`},
		"gap": {1, func(rank int) []checkpoint.Item { return []checkpoint.Item{checkpoint.Sharded("w", one, rank, 3)} },
			`item "w": no part has element 2`},
		"length": {1, func(rank int) []checkpoint.Item {
			return []checkpoint.Item{checkpoint.Replicated("w", make([]float32, 2+rank))}
		},
			`"w" has 2 elements of type float32 on rank 0 and 3 of type float32 on rank 1`},
		"type": {1, func(rank int) []checkpoint.Item {
			if rank == 1 {
				return []checkpoint.Item{checkpoint.Replicated("w", []int32{1, 2})}
			}
			return []checkpoint.Item{checkpoint.Replicated("w", make([]float32, 2))}
		}, `"w" has 2 elements of type float32 on rank 0 and 2 of type int32 on rank 1`},
		"no JSON": {1, func(int) []checkpoint.Item { return []checkpoint.Item{checkpoint.Value("f", func() {})} }, `rank 0: item "f": json: unsupported type`},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			nexartest.Run(t, 2, func(t *testing.T, c *nexar.Comm) {
				err := open(t, c, dir).Save(t.Context(), test.step, test.items(c.Rank())...)
				if err == nil || !strings.Contains(err.Error(), test.want) {
					t.Errorf("error %v, want %s", err, test.want)
				}
			})
		})
	}
}
