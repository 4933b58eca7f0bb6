package raftlog

import (
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/nexar-go/nexar/consensus"
)

// A model is the expected content of a log, independent of the tested code.
type model struct {
	hard     *raftpb.HardState
	snapshot *raftpb.Snapshot
	entries  []*raftpb.Entry
}

func (m *model) clone() *model {
	return &model{proto.CloneOf(m.hard), proto.CloneOf(m.snapshot), slices.Clone(m.entries)}
}

// contents returns the model as the contents of a directory.
func (m *model) contents(cfg *consensus.Config) *contents {
	return &contents{member: cfg.Self, seeds: encodeSeeds(cfg.Seeds), hard: m.hard, snapshot: m.snapshot, entries: m.entries}
}

// differs describes how contents differ from the model. It is empty if they do not.
func (m *model) differs(c *contents) string {
	switch {
	case !proto.Equal(m.hard, c.hard):
		return fmt.Sprintf("hard state %v, want %v", c.hard, m.hard)
	case !proto.Equal(m.snapshot, c.snapshot):
		return fmt.Sprintf("snapshot of entry %d, want %d", c.snapshot.GetMetadata().GetIndex(), m.snapshot.GetMetadata().GetIndex())
	case !slices.EqualFunc(m.entries, c.entries, func(a, b *raftpb.Entry) bool { return proto.Equal(a, b) }):
		return fmt.Sprintf("%d entries, want %d", len(c.entries), len(m.entries))
	}
	return ""
}

func (m *model) last() uint64 {
	if n := len(m.entries); n > 0 {
		return m.entries[n-1].GetIndex()
	}
	return m.snapshot.GetMetadata().GetIndex()
}

// files maps names to the files of a state directory.
type files map[string][]byte

func readFiles(t testing.TB, dir string) files {
	t.Helper()
	f := make(files)
	for _, name := range []string{stateFile, lockFileName} {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		f[name] = b
	}
	return f
}

func (f files) clone() files {
	c := make(files)
	for name, b := range f {
		c[name] = slices.Clone(b)
	}
	return c
}

func (f files) write(t *testing.T, dir string) {
	t.Helper()
	for name, b := range f {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A history is a state directory after some time of use.
type history struct {
	t   *testing.T
	rng *rand.Rand
	cfg consensus.Config
	d   *disk
	model
	past  []files // after each change
	small bool    // its entries are small
}

func testConfig(dir string, seeds int) consensus.Config {
	cfg := consensus.Config{Dir: dir, Logger: slog.New(slog.DiscardHandler)}
	for i := range seeds {
		cfg.Seeds = append(cfg.Seeds, uint64(i+1)<<40)
	}
	cfg.Self = cfg.Seeds[0]
	return cfg
}

func newHistory(t *testing.T, rng *rand.Rand, changes int, small bool) *history {
	t.Helper()
	h := &history{t: t, rng: rng, cfg: testConfig(t.TempDir(), 1+2*rng.IntN(2)), small: small}
	h.open()
	h.model = model{
		hard: &raftpb.HardState{Term: proto.Uint64(1), Commit: proto.Uint64(1)},
		snapshot: &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
			ConfState: &raftpb.ConfState{Voters: h.cfg.Seeds}, Index: proto.Uint64(1), Term: proto.Uint64(1),
		}},
	}
	for range changes {
		if rng.IntN(40) == 0 {
			h.close()
			h.open()
		}
		if rng.IntN(20) == 0 {
			h.fillDisk()
		}
		h.step()
		h.past = append(h.past, readFiles(t, h.cfg.Dir))
	}
	h.close()
	return h
}

func (h *history) open() {
	h.t.Helper()
	d, c, err := openDisk(&h.cfg)
	if err != nil {
		h.t.Fatalf("an intact state is refused: %v", err)
	}
	if h.hard != nil {
		if diff := h.differs(c); diff != "" {
			h.t.Fatalf("an intact state is read wrongly: %s", diff)
		}
	}
	h.d = d
}

func (h *history) close() {
	h.t.Helper()
	if err := h.d.close(); err != nil {
		h.t.Fatal(err)
	}
}

// step makes a change of a kind that Raft requests.
func (h *history) step() {
	h.t.Helper()
	switch kind := h.rng.IntN(12); {
	case kind == 0: // a vote
		h.hard = h.newHard(1, h.hard.GetCommit())
	case kind == 1 && len(h.entries) > 40:
		h.snapshot = h.newSnapshot(h.hard.GetCommit())
		h.entries = slices.DeleteFunc(slices.Clone(h.entries), func(e *raftpb.Entry) bool { return e.GetIndex() <= h.hard.GetCommit() })
	case kind == 2 && h.rng.IntN(5) == 0: // of another seed
		h.snapshot = h.newSnapshot(h.last() + 1 + h.rng.Uint64N(50))
		h.entries = nil
		h.hard = h.newHard(0, h.last())
	default:
		from := h.last() + 1
		if kind == 3 { // uncommitted entries are replaced
			from -= h.rng.Uint64N(min(5, from-h.hard.GetCommit()))
		}
		size := 1500
		if h.small {
			size = 60
		}
		h.entries = slices.DeleteFunc(slices.Clone(h.entries), func(e *raftpb.Entry) bool { return e.GetIndex() >= from })
		for i := range 1 + h.rng.Uint64N(5) {
			h.entries = append(h.entries, &raftpb.Entry{Index: proto.Uint64(from + i), Term: h.hard.Term, Data: h.bytes(h.rng.IntN(size))})
		}
		h.hard = h.newHard(0, h.hard.GetCommit()+h.rng.Uint64N(h.last()-h.hard.GetCommit()+1))
	}
	if err := h.d.save(h.contents(&h.cfg)); err != nil {
		h.t.Fatal(err)
	}
}

// fullDevice fails each write as a full disk does.
const fullDevice = "/dev/full"

// fillDisk attempts a change on a full disk, and starts again from the state before it.
func (h *history) fillDisk() {
	h.t.Helper()
	if _, err := os.Stat(fullDevice); err != nil {
		return // not on Linux
	}
	path := filepath.Join(h.cfg.Dir, stateFile+newSuffix)
	if err := os.Symlink(fullDevice, path); err != nil {
		h.t.Fatal(err)
	}
	change := h.model.clone()
	change.hard = h.newHard(1, h.hard.GetCommit())
	if err := h.d.save(change.contents(&h.cfg)); err == nil || !strings.Contains(err.Error(), path) {
		h.t.Errorf("a change on a full disk: error %v", err)
	}
	if err := os.Remove(path); err != nil {
		h.t.Fatal(err)
	}
	h.close()
	h.open()
}

func (h *history) newHard(terms, commit uint64) *raftpb.HardState {
	return &raftpb.HardState{Term: proto.Uint64(h.hard.GetTerm() + terms), Vote: proto.Uint64(h.cfg.Self), Commit: &commit}
}

func (h *history) newSnapshot(index uint64) *raftpb.Snapshot {
	return &raftpb.Snapshot{Data: h.bytes(h.rng.IntN(6000)), Metadata: &raftpb.SnapshotMetadata{
		ConfState: &raftpb.ConfState{Voters: h.cfg.Seeds}, Index: &index, Term: h.hard.Term,
	}}
}

func (h *history) bytes(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(h.rng.Uint32())
	}
	return b
}

// opened opens files as a seed does. After success, further changes must succeed
// and be there after the next start.
func (h *history) opened(f files) (c *contents, err error) {
	h.t.Helper()
	cfg := h.cfg
	cfg.Dir = filepath.Join(h.t.TempDir(), "state")
	if err := os.Mkdir(cfg.Dir, 0o700); err != nil {
		h.t.Fatal(err)
	}
	defer os.RemoveAll(cfg.Dir)
	f.write(h.t, cfg.Dir)
	d, c, err := openDisk(&cfg)
	if err != nil {
		return nil, err
	}
	m := &model{proto.CloneOf(c.hard), proto.CloneOf(c.snapshot), slices.Clone(c.entries)}
	m.entries = append(m.entries, &raftpb.Entry{Index: proto.Uint64(m.last() + 1), Term: m.hard.Term, Data: h.bytes(200)})
	if err := errors.Join(d.save(m.contents(&cfg)), d.close()); err != nil {
		h.t.Errorf("a change after the start: %v", err)
	}
	d, again, err := openDisk(&cfg)
	if err != nil {
		h.t.Fatalf("a second start: %v", err)
	}
	if diff := m.differs(again); diff != "" {
		h.t.Errorf("a second start: %s", diff)
	}
	if err := d.close(); err != nil {
		h.t.Error(err)
	}
	return c, nil
}
