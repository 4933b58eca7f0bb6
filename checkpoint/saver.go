package checkpoint

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nexar-go/nexar"
)

// Config configures a [Saver]. It must be the same on all ranks.
type Config struct {
	// Keep is the number of checkpoints that are kept: older ones are removed after each new one. 0 keeps 2, and a negative number all.
	Keep int
}

// A Saver writes and reads checkpoints. Its methods are for one goroutine.
type Saver struct {
	comm     *nexar.Comm
	dir      string
	keep     int
	id       string // of this Saver, the same on all ranks
	isWriter bool   // on rank 0, once this Saver has begun a checkpoint
	create   func(path string) (file, error)

	writing sync.WaitGroup
	ctx     context.Context
	cancel  context.CancelFunc
	err     error // of the last Start
}

// keepDefault is the default of Config.Keep.
const keepDefault = 2

// New returns a Saver for a folder, which it makes if necessary. All ranks call it as they call a collective. The Saver has a communicator of its own, so that
// ranks make collectives on c while it writes. New changes no file of other Savers, so a program may read the checkpoints of a job that runs.
//
// Of several Savers of one folder, the one that wrote last may write: the others get [ErrTaken].
func New(ctx context.Context, c *nexar.Comm, dir string, cfg Config) (*Saver, error) {
	own, err := c.Dup(ctx)
	if err != nil {
		return nil, err
	}
	s := &Saver{comm: own, dir: dir, keep: cfg.Keep, create: create}
	if s.keep == 0 {
		s.keep = keepDefault
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	err = s.together(ctx, func() error {
		if own.Rank() != 0 {
			return nil
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		return s.restore()
	})
	if err == nil {
		err = s.together(ctx, func() error { // on other hosts: the file system is shared
			info, err := os.Stat(dir)
			if err == nil && !info.IsDir() {
				err = fmt.Errorf("%s is no folder", dir)
			}
			return err
		})
	}
	id := []uint64{rand.Uint64()}
	if err == nil {
		err = nexar.Broadcast(ctx, own, id, 0)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	s.id = fmt.Sprintf("%016x", id[0])
	return s, nil
}

// Close waits for a checkpoint that is being written, and closes the communicator of the Saver.
func (s *Saver) Close() error {
	err := s.Wait()
	s.cancel()
	return errors.Join(err, s.comm.Close())
}

// Start copies the state and returns; the checkpoint is written meanwhile. All ranks call it with the same step and items of the same names. It waits until the
// checkpoint before has been written, and returns its error.
func (s *Saver) Start(ctx context.Context, step int64, items ...Item) error {
	err := s.Wait()
	parts, invalid := copyParts(s.comm, step, items)
	text := fmt.Sprint("step ", step)
	if invalid != nil {
		text = ""
	}
	if e := s.alike(ctx, text, items, invalid); e != nil {
		return errors.Join(err, e)
	}
	s.writing.Go(func() { s.err = s.write(s.ctx, step, items, parts) })
	return err
}

// Wait waits until the checkpoint of the last Start has been written, and returns its error, once.
func (s *Saver) Wait() error {
	s.writing.Wait()
	err := s.err
	s.err = nil
	return err
}

// Save is Start and Wait.
func (s *Saver) Save(ctx context.Context, step int64, items ...Item) error {
	return errors.Join(s.Start(ctx, step, items...), s.Wait())
}

// copyParts returns copies of the parts that this rank writes.
func copyParts(c *nexar.Comm, step int64, items []Item) ([]part, error) {
	if step < 0 {
		return nil, fmt.Errorf("step %d, must not be negative", step)
	}
	seen := make(map[string]bool)
	var parts []part
	for _, it := range items {
		if it.name() == "" || seen[it.name()] {
			return nil, fmt.Errorf("item %q: names must be different, and not empty", it.name())
		}
		seen[it.name()] = true
		p, err := it.part(c.Rank(), c.Size())
		if err != nil {
			return nil, fmt.Errorf("item %w", err)
		}
		parts = append(parts, p)
	}
	return parts, nil
}

// alike returns an error on all ranks if one has an error, or ranks have other items.
func (s *Saver) alike(ctx context.Context, text string, items []Item, invalid error) error {
	for _, it := range items {
		text += fmt.Sprintf(", %q", it.name())
	}
	texts, err := s.gather(ctx, []byte(text))
	if err != nil {
		return err
	}
	if err := s.together(ctx, func() error { return invalid }); err != nil {
		return err
	}
	for rank, t := range texts {
		if string(t) != string(texts[0]) {
			return fmt.Errorf("checkpoint: rank 0 has %s, and rank %d has %s; want the same on all ranks", texts[0], rank, t)
		}
	}
	return nil
}

// write writes a checkpoint.
func (s *Saver) write(ctx context.Context, step int64, items []Item, parts []part) error {
	partial := filepath.Join(s.dir, partialPrefix+stepFolder(step)+"-"+s.id)
	var lists []tensor
	err := s.together(ctx, func() error {
		if s.comm.Rank() != 0 {
			return nil
		}
		return s.begin(step, partial)
	})
	if err != nil {
		return err
	}
	err = s.together(ctx, func() (err error) {
		lists, err = writeFile(filepath.Join(partial, fmt.Sprint("rank-", s.comm.Rank())), s.create, items, parts)
		if err != nil { // Another Saver may have removed the folder.
			err = errors.Join(s.checkWriter(), err)
		}
		return err
	})
	if err == nil {
		err = s.commit(ctx, step, partial, lists)
	}
	if err != nil && s.comm.Rank() == 0 {
		_ = os.RemoveAll(partial) // makes room on a full disk; New and write remove it otherwise
	}
	return err
}

// begin makes the folder of a checkpoint, if this Saver may write it.
func (s *Saver) begin(step int64, partial string) error {
	if err := s.take(); err != nil {
		return err
	}
	if err := s.removePartial(); err != nil {
		return err
	}
	list, err := steps(s.dir)
	if err != nil {
		return err
	}
	if len(list) > 0 && list[0] > step {
		return fmt.Errorf("%s has a checkpoint of step %d, want none after step %d: Load it, remove it, or use another folder", s.dir, list[0], step)
	}
	return os.Mkdir(partial, 0o755)
}

// checkWriter returns an error if another Saver may write to the folder.
func (s *Saver) checkWriter() error {
	path := filepath.Join(s.dir, writerName)
	text, err := os.ReadFile(path)
	if err == nil && !strings.HasPrefix(string(text), s.id) {
		err = fmt.Errorf("%s: %w: %s", path, ErrTaken, strings.TrimSpace(string(text)))
	}
	return err
}

// take makes this Saver the one that may write to the folder, at its first checkpoint. Later calls return an error if another Saver has become the writer.
func (s *Saver) take() error {
	if s.isWriter {
		return s.checkWriter()
	}
	path := filepath.Join(s.dir, writerName)
	host, _ := os.Hostname()
	text := fmt.Sprintf("%s: process %d on host %s, at %s\n", s.id, os.Getpid(), host, time.Now().UTC().Format(time.RFC3339))
	if err := os.WriteFile(path+"-"+s.id, []byte(text), 0o644); err != nil {
		return err
	}
	if err := os.Rename(path+"-"+s.id, path); err != nil {
		return err
	}
	s.isWriter = true
	return nil
}

// commit gives a complete checkpoint its name.
func (s *Saver) commit(ctx context.Context, step int64, partial string, own []tensor) error {
	text, err := json.Marshal(own)
	if err != nil {
		return err
	}
	texts, err := s.gather(ctx, text)
	if err != nil {
		return err
	}
	return s.together(ctx, func() error {
		if s.comm.Rank() != 0 {
			return nil
		}
		m := manifest{Program: program, Version: version, Step: step, Ranks: s.comm.Size(), Written: time.Now().UTC(), Order: byteOrder()}
		if err := m.merge(texts); err != nil {
			return err
		}
		if err := errors.Join(s.writeManifest(partial, &m), s.checkWriter()); err != nil {
			return err
		}
		folder := filepath.Join(s.dir, stepFolder(step))
		old := filepath.Join(s.dir, oldPrefix+stepFolder(step))
		if err := os.Rename(folder, old); err != nil && !errors.Is(err, fs.ErrNotExist) { // the same step again
			return err
		}
		if err := os.Rename(partial, folder); err != nil {
			return err
		}
		return errors.Join(syncFolder(s.dir), os.RemoveAll(old), s.removeOld())
	})
}

// merge adds the parts of all ranks.
func (m *manifest) merge(texts [][]byte) error {
	for rank, text := range texts {
		var list []tensor
		if err := json.Unmarshal(text, &list); err != nil {
			return fmt.Errorf("rank %d: %w", rank, err)
		}
		if rank > 0 && len(list) != len(m.Items) {
			return fmt.Errorf("rank %d has written %d items, want %d as rank 0", rank, len(list), len(m.Items))
		}
		for i, t := range list {
			if rank == 0 {
				m.Items = append(m.Items, &t)
				continue
			}
			sum := m.Items[i]
			if sum.Value != nil && len(t.Parts) > 0 {
				return fmt.Errorf("%q is a value on rank 0 and a vector on rank %d, want the same", t.Name, rank)
			}
			if sum.Value == nil && (sum.elem != t.elem || sum.Total != t.Total) {
				return fmt.Errorf("%q has %d elements of type %s on rank 0 and %d of type %s on rank %d, want the same", t.Name, sum.Total, sum.Type, t.Total, t.Type, rank)
			}
			sum.Parts = append(sum.Parts, t.Parts...)
		}
	}
	return m.check()
}

func (s *Saver) writeManifest(folder string, m *manifest) (err error) {
	text, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	f, err := s.create(filepath.Join(folder, manifestName))
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Sync(), f.Close(), syncFolder(folder))
}

// restore brings back checkpoints that a process has not replaced because it was killed.
func (s *Saver) restore() error {
	return s.each(oldPrefix, func(path, name string) error {
		folder := filepath.Join(s.dir, name)
		if _, missing := os.Stat(folder); !errors.Is(missing, fs.ErrNotExist) {
			return missing
		}
		return os.Rename(path, folder)
	})
}

// removePartial removes the incomplete folders of other Savers, and checkpoints that they have replaced.
func (s *Saver) removePartial() error {
	remove := func(path, _ string) error { return os.RemoveAll(path) }
	return errors.Join(s.restore(), s.each(oldPrefix, remove), s.each(partialPrefix, remove))
}

// each calls f for each entry of the folder named by prefix and the name of a checkpoint.
func (s *Saver) each(prefix string, f func(path, name string) error) error {
	entries, err := os.ReadDir(s.dir)
	for _, e := range entries {
		if name, ok := strings.CutPrefix(e.Name(), prefix); ok && strings.HasPrefix(name, stepPrefix) {
			err = errors.Join(err, f(filepath.Join(s.dir, e.Name()), name))
		}
	}
	return err
}

// removeOld removes all checkpoints but the newest ones.
func (s *Saver) removeOld() error {
	list, err := steps(s.dir)
	if err != nil || s.keep < 0 {
		return err
	}
	for _, step := range list[min(s.keep, len(list)):] {
		// A process may be killed here: a folder without its manifest is no checkpoint.
		folder := filepath.Join(s.dir, stepFolder(step))
		if e := os.Remove(filepath.Join(folder, manifestName)); !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
		err = errors.Join(err, os.RemoveAll(folder))
	}
	return err
}

// Load sets the items to the newest checkpoint and returns its step, or -1 and no error if there is none. All ranks call it with items of the same names; the
// checkpoint may have more. It may have been written by another number of ranks. If the newest one is damaged, the error names the file, and the items are
// undefined: to go back to an older one, remove the folder.
func (s *Saver) Load(ctx context.Context, items ...Item) (step int64, err error) {
	if err := s.Wait(); err != nil {
		return -1, err
	}
	if err := s.alike(ctx, "items", items, nil); err != nil {
		return -1, err
	}
	newest := []int64{-1}
	err = s.together(ctx, func() error {
		if s.comm.Rank() == 0 {
			list, err := steps(s.dir)
			if err != nil {
				return err
			}
			newest = append(list, newest...)[:1]
		}
		return nil
	})
	if err != nil {
		return -1, err
	}
	if err := nexar.Broadcast(ctx, s.comm, newest, 0); err != nil || newest[0] < 0 {
		return -1, err
	}
	err = s.together(ctx, func() error { return load(filepath.Join(s.dir, stepFolder(newest[0])), newest[0], items) })
	if err != nil {
		return -1, err
	}
	return newest[0], nil
}

// load sets the items to a checkpoint.
func load(folder string, step int64, items []Item) error {
	m, err := readManifest(folder)
	if err != nil {
		return err
	}
	if m.Step != step {
		return fmt.Errorf("%s: %w: the manifest is that of step %d", folder, ErrForeign, m.Step)
	}
	r := &reader{folder: folder}
	defer r.close()
	for _, it := range items {
		i := slices.IndexFunc(m.Items, func(t *tensor) bool { return t.Name == it.name() })
		if i < 0 {
			return fmt.Errorf("%s: %w: it has no item %q", folder, ErrForeign, it.name())
		}
		if err := it.load(r, m.Items[i]); err != nil {
			if !errors.Is(err, ErrDamaged) {
				err = fmt.Errorf("%s: %w: item %w", folder, ErrForeign, err)
			}
			return err
		}
	}
	return nil
}
