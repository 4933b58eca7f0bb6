package raftlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// A damage changes the files of a state directory. It returns nil if it does not apply.
type damage struct {
	name string
	old  bool // it restores an earlier state
	do   func(h *history, f files)
}

// damages returns all kinds of damage, most of the database.
func damages() []damage {
	return []damage{
		{"truncated database", false, func(h *history, f files) { f[databaseFile] = h.truncate(f[databaseFile]) }},
		{"truncated counter", false, func(h *history, f files) { f[counterFile] = h.truncate(f[counterFile]) }},
		{"empty database", false, func(_ *history, f files) { f[databaseFile] = nil }},
		{"empty counter", false, func(_ *history, f files) { f[counterFile] = nil }},
		{"no database", false, func(_ *history, f files) { delete(f, databaseFile) }},
		{"no counter", false, func(_ *history, f files) { delete(f, counterFile) }},
		{"flipped bit", false, func(h *history, f files) { h.flip(h.used(f[databaseFile]), 1) }},
		{"flipped bits", false, func(h *history, f files) { h.flip(h.used(f[databaseFile]), 2+h.rng.IntN(60)) }},
		{"flipped bits of a header", false, func(h *history, f files) {
			h.flip(h.pages(f, h.rng.Uint64N(2), 1)[:pageHeader+metaBytes], 1+h.rng.IntN(3))
		}},
		{"flipped bits of the start of a page", false, func(h *history, f files) { h.flip(h.anyPage(f)[:200], 1+h.rng.IntN(3)) }},
		{"flipped bits of the free list", false, func(h *history, f files) {
			if m, err := readMeta(strings.NewReader(string(f[databaseFile]))); err == nil {
				h.flip(h.pages(f, m.freelist, 1)[:200], 1+h.rng.IntN(3))
			}
		}},
		{"flipped bits of the counter", false, func(h *history, f files) {
			h.flip(f[counterFile][copyStride*h.rng.IntN(2):][:copyBytes], 1+h.rng.IntN(3))
		}},
		{"zeroed page", false, func(h *history, f files) { clear(h.anyPage(f)) }},
		{"zeroed header", false, func(h *history, f files) { clear(h.pages(f, h.rng.Uint64N(2), 1)) }},
		{"zeroed pages", false, func(h *history, f files) {
			for range 2 + h.rng.IntN(5) {
				clear(h.anyPage(f))
			}
		}},
		{"zeroed copy", false, func(h *history, f files) { clear(f[counterFile][copyStride*h.rng.IntN(2):][:copyStride]) }},
		{"random page", false, func(h *history, f files) { copy(h.anyPage(f), h.bytes(os.Getpagesize())) }},
		{"swapped pages", false, func(h *history, f files) {
			a, b := h.anyPage(f), h.anyPage(f)
			c := slices.Clone(a)
			copy(a, b)
			copy(b, c)
		}},
		{"copied page", false, func(h *history, f files) { copy(h.anyPage(f), h.anyPage(f)) }},
		{"older page", true, func(h *history, f files) {
			old := h.earlier(20)[databaseFile]
			id := h.rng.Uint64N(uint64(min(len(old), len(f[databaseFile])) / os.Getpagesize()))
			copy(h.pages(f, id, 1), old[id*uint64(os.Getpagesize()):])
		}},
		{"older header", true, func(h *history, f files) {
			id := h.rng.Uint64N(2)
			copy(h.pages(f, id, 1), h.earlier(4)[databaseFile][id*uint64(os.Getpagesize()):])
		}},
		{"older database", true, func(h *history, f files) { f[databaseFile] = slices.Clone(h.earlier(len(h.past))[databaseFile]) }},
		{"older counter", true, func(h *history, f files) { f[counterFile] = slices.Clone(h.earlier(len(h.past))[counterFile]) }},
		{"longer database", false, func(h *history, f files) { f[databaseFile] = append(f[databaseFile], h.bytes(h.rng.IntN(9000))...) }},
		{"foreign database", false, func(h *history, f files) { f[databaseFile] = h.foreign() }},
		{"foreign counter", false, func(h *history, f files) { f[counterFile] = h.bytes(counterBytes) }},
		{"files of another seed", false, func(h *history, f files) {
			other := h.past[len(h.past)-1].clone()
			h2 := newHistory(h.t, h.rng, 3, true)
			name := []string{databaseFile, counterFile}[h.rng.IntN(2)]
			other[name] = h2.past[2][name]
			f[name] = other[name]
		}},
	}
}

func (h *history) truncate(b []byte) []byte { return b[:h.rng.IntN(len(b))] }

// used returns the written pages of a database.
func (h *history) used(b []byte) []byte {
	end := len(b)
	for end > 0 && b[end-1] == 0 {
		end--
	}
	return b[:end]
}

func (h *history) flip(b []byte, bits int) {
	for range bits {
		b[h.rng.IntN(len(b))] ^= 1 << h.rng.IntN(8)
	}
}

func (h *history) pages(f files, id, n uint64) []byte {
	size := uint64(os.Getpagesize())
	return f[databaseFile][id*size:][:n*size]
}

func (h *history) anyPage(f files) []byte {
	return h.pages(f, h.rng.Uint64N(uint64(len(h.used(f[databaseFile]))/os.Getpagesize()+1)), 1)
}

// earlier returns the files after one of the last transactions, except the very last.
func (h *history) earlier(within int) files {
	n := len(h.past) - 1
	return h.past[n-1-h.rng.IntN(min(within, n))]
}

// foreign returns a file that nexar has not written.
func (h *history) foreign() []byte {
	switch h.rng.IntN(3) {
	case 0:
		return []byte("SQLite format 3\x00 and more\n")
	case 1:
		return h.bytes(1 + h.rng.IntN(100_000))
	}
	path := filepath.Join(h.t.TempDir(), "foreign.db")
	db, err := bolt.Open(path, 0o600, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucket([]byte("members"))
		if err != nil {
			return err
		}
		return b.Put([]byte("key"), []byte("value"))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		h.t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		h.t.Fatal(err)
	}
	return b
}

// A damaged state directory leads either to an error that names a file and a remedy, or
// to exactly the last state of the seed: never to an older state, another one, or a
// panic. DAMAGES is the number of damages, and DAMAGE_SEED repeats a run.
func TestDamage(t *testing.T) {
	total, seed := 100, rand.Uint64()
	if s := os.Getenv("DAMAGES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatalf("DAMAGES=%q: %v", s, err)
		}
		total = n
	}
	if s := os.Getenv("DAMAGE_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("DAMAGE_SEED=%q: %v", s, err)
		}
		seed = n
	}
	fmt.Printf("TestDamage: DAMAGE_SEED=%d\n", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	refused, right := make(map[string]int), make(map[string]int)
	const perHistory = 50
	var h *history
	for i := range total {
		if i%perHistory == 0 {
			h = newHistory(t, rng, 30+rng.IntN(120), rng.IntN(2) == 0)
		}
		f := h.past[len(h.past)-1].clone()
		kinds := h.damage(f)
		c, err := h.opened(f)
		var fileErr *FileError
		switch {
		case err == nil:
			right[kinds]++
			if diff := h.differs(c); diff != "" {
				t.Errorf("damage %d (%s) is not detected: %s", i, kinds, diff)
			}
		case !errors.As(err, &fileErr) || strings.Contains(err.Error(), "\n"):
			t.Errorf("damage %d (%s): error %q", i, kinds, err)
		default:
			refused[kinds]++
		}
		if t.Failed() {
			t.Fatalf("repeat it by DAMAGE_SEED=%d DAMAGES=%d", seed, total)
		}
	}
	t.Logf("refused: %v", refused)
	t.Logf("the right state: %v", right)
}

// damage damages files once or twice. Two damages that restore an earlier state could
// do so consistently, like a copy of a whole directory, which nothing in it shows.
func (h *history) damage(f files) (kinds string) {
	all := damages()
	first := all[h.rng.IntN(len(all))]
	first.do(h, f)
	if h.rng.IntN(4) > 0 || len(f) < 2 || len(f[counterFile]) < counterBytes || len(h.used(f[databaseFile])) < 4*os.Getpagesize() {
		return first.name
	}
	second := all[h.rng.IntN(len(all))]
	if first.old || second.old || len(f[databaseFile])%os.Getpagesize() != 0 {
		return first.name
	}
	second.do(h, f)
	return "two"
}
