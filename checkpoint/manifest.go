package checkpoint

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// program and version identify a manifest. A program refuses manifests of newer versions.
	program = "nexar checkpoint"
	version = 1

	manifestName = "manifest.json"
	manifestMax  = 64 << 20 // bytes
)

// A manifest describes a checkpoint.
type manifest struct {
	Program string    `json:"program"`
	Version int       `json:"version"`
	Step    int64     `json:"step"`
	Ranks   int       `json:"ranks"`
	Written time.Time `json:"written"`
	Order   string    `json:"byteOrder"`
	Items   []*tensor `json:"items"`
}

// A tensor is an item of a checkpoint: a vector in parts, or a value.
type tensor struct {
	Name string `json:"name"`
	elem
	Total int             `json:"elements"`
	Parts []tensorPart    `json:"parts,omitempty"`
	Value json.RawMessage `json:"value,omitempty"`
}

// A tensorPart says where elements of a vector are.
type tensorPart struct {
	File   string `json:"file"`
	At     int64  `json:"at"` // in bytes
	Offset int    `json:"from"`
	Count  int    `json:"count"`
	Sum    string `json:"crc32c"`
}

// Errors of checkpoints, for errors.Is. Their texts name the file.
var (
	// ErrDamaged: a file is damaged, truncated or missing.
	ErrDamaged = errors.New("damaged checkpoint")
	// ErrForeign: the folder has files of another program, or of another training: other items, types or lengths.
	ErrForeign = errors.New("checkpoint of another program or training")
	// ErrNewer: a newer version of this package has written the checkpoint.
	ErrNewer = errors.New("checkpoint of a newer version")
	// ErrTaken: a Saver of another job, or of a later world of the same job, has begun to write to the folder.
	ErrTaken = errors.New("folder of another Saver")
)

// readManifest reads the manifest of a checkpoint.
func readManifest(folder string) (*manifest, error) {
	path := filepath.Join(folder, manifestName)
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: %w: there is no manifest", path, ErrForeign)
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s: %w: want a regular file", path, ErrDamaged)
	case info.Size() > manifestMax:
		return nil, fmt.Errorf("%s: %w: %d bytes, want at most %d", path, ErrForeign, info.Size(), manifestMax)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var head struct {
		Program string
		Version int
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrDamaged, err)
	}
	switch {
	case head.Program != program:
		return nil, fmt.Errorf("%s: %w: the program is %q, want %q", path, ErrForeign, head.Program, program)
	case head.Version < 1:
		return nil, fmt.Errorf("%s: %w: version %d, want 1 or more", path, ErrDamaged, head.Version)
	case head.Version > version:
		return nil, fmt.Errorf("%s: %w: version %d, and this program reads up to %d", path, ErrNewer, head.Version, version)
	}
	m := new(manifest)
	if err := json.Unmarshal(text, m); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrDamaged, err)
	}
	if err := m.check(); err != nil {
		return nil, fmt.Errorf("%s: %w: %w", path, ErrDamaged, err)
	}
	if m.Order != byteOrder() {
		return nil, fmt.Errorf("%s: %w: its numbers are %s-endian, and those of this machine %s-endian", path, ErrForeign, m.Order, byteOrder())
	}
	return m, nil
}

// check returns an error for a manifest that no Saver has written.
func (m *manifest) check() error {
	seen := make(map[string]bool)
	for _, t := range m.Items {
		switch {
		case t == nil || t.Name == "":
			return errors.New("an item without a name")
		case seen[t.Name]:
			return fmt.Errorf("two items %q", t.Name)
		case t.Value == nil && (t.Size < 1 || t.Total < 0):
			return fmt.Errorf("item %q: %d elements of %d bytes", t.Name, t.Total, t.Size)
		}
		seen[t.Name] = true
		for _, p := range t.Parts {
			if p.File != filepath.Base(p.File) || p.At < 0 || p.Offset < 0 || p.Count < 0 || p.Offset > t.Total-p.Count {
				return fmt.Errorf("item %q: a part with %d elements from %d on, at byte %d of file %q", t.Name, p.Count, p.Offset, p.At, p.File)
			}
		}
		if gap := t.gap(); gap >= 0 {
			return fmt.Errorf("item %q: no part has element %d", t.Name, gap)
		}
	}
	return nil
}

// gap returns an element that no part has, or -1.
func (t *tensor) gap() int {
	parts := slices.SortedFunc(slices.Values(t.Parts), func(a, b tensorPart) int { return a.Offset - b.Offset })
	covered := 0
	for _, p := range parts {
		if p.Offset > covered {
			return covered
		}
		covered = max(covered, p.Offset+p.Count)
	}
	if covered < t.Total && t.Value == nil {
		return covered
	}
	return -1
}

const (
	stepPrefix    = "step-"
	partialPrefix = "partial-" // of a folder that is being written
	writerName    = "writer"   // file that names the Saver that may write
	oldPrefix     = "old-"     // of a checkpoint that is being replaced
)

func stepFolder(step int64) string { return stepPrefix + strconv.FormatInt(step, 10) }

// steps returns the steps of all checkpoints in a folder, the newest first. A folder that does not exist has none.
func steps(dir string) ([]int64, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	var list []int64
	for _, e := range entries {
		if text, ok := strings.CutPrefix(e.Name(), stepPrefix); ok && e.IsDir() {
			if step, err := strconv.ParseInt(text, 10, 64); err == nil && step >= 0 {
				list = append(list, step)
			}
		}
	}
	slices.Sort(list)
	slices.Reverse(list)
	return list, nil
}
