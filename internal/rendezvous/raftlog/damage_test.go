package raftlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// blockBytes is the size of a damaged block.
const blockBytes = 512

// A damage changes the files of a state directory.
type damage struct {
	name string
	do   func(h *history, f files)
}

// damages returns all kinds of damage, most of the state.
func damages() []damage {
	change := func(name string, do func(h *history, b []byte) []byte) damage {
		return damage{name, func(h *history, f files) { f[stateFile] = do(h, f[stateFile]) }}
	}
	return []damage{
		{"no state", func(_ *history, f files) { delete(f, stateFile) }},
		{"empty lock file", func(_ *history, f files) { f[lockFileName] = nil }},
		{"random lock file", func(h *history, f files) { f[lockFileName] = h.bytes(1 + h.rng.IntN(100)) }},
		{"torn new state", func(h *history, f files) { f[stateFile+newSuffix] = h.truncate(f[stateFile]) }},
		{"older new state", func(h *history, f files) { f[stateFile+newSuffix] = h.earlier() }},
		change("empty state", func(*history, []byte) []byte { return nil }),
		change("truncated state", (*history).truncate),
		change("longer state", func(h *history, b []byte) []byte { return append(b, h.bytes(1+h.rng.IntN(9000))...) }),
		change("flipped bit", func(h *history, b []byte) []byte { return h.flip(b, b, 1) }),
		change("flipped bits", func(h *history, b []byte) []byte { return h.flip(b, b, 2+h.rng.IntN(60)) }),
		change("flipped bits of the header", func(h *history, b []byte) []byte { return h.flip(b, b[:min(len(b), headerBytes)], 1+h.rng.IntN(3)) }),
		change("flipped bits of the checksum", func(h *history, b []byte) []byte { return h.flip(b, b[max(0, len(b)-32):], 1+h.rng.IntN(3)) }),
		change("zeroed block", func(h *history, b []byte) []byte { clear(h.block(b)); return b }),
		change("zeroed state", func(_ *history, b []byte) []byte { clear(b); return b }),
		change("random block", func(h *history, b []byte) []byte { copy(h.block(b), h.bytes(blockBytes)); return b }),
		change("copied block", func(h *history, b []byte) []byte { copy(h.block(b), h.block(b)); return b }),
		change("swapped blocks", func(h *history, b []byte) []byte {
			x, y := h.block(b), h.block(b)
			was := slices.Clone(x)
			copy(y, was[:copy(x, y)])
			return b
		}),
		change("older block", func(h *history, b []byte) []byte {
			old := h.earlier()
			at := blockBytes * h.rng.IntN(min(len(old), len(b))/blockBytes+1)
			copy(b[at:min(at+blockBytes, len(b))], old[min(at, len(old)):])
			return b
		}),
		change("torn write of the last change", func(h *history, b []byte) []byte {
			old := h.past[len(h.past)-2][stateFile]
			at := h.rng.IntN(min(len(old), len(b)) + 1)
			return append(slices.Clone(b[:at]), old[at:]...)
		}),
		change("foreign state", func(h *history, _ []byte) []byte {
			if h.rng.IntN(2) == 0 {
				return []byte("SQLite format 3\x00 and more\n")
			}
			return h.bytes(1 + h.rng.IntN(100_000))
		}),
	}
}

func (h *history) truncate(b []byte) []byte { return slices.Clone(b[:h.rng.IntN(max(1, len(b)))]) }

// flip flips bits of a part of a file, and returns the file.
func (h *history) flip(b, part []byte, bits int) []byte {
	for i := 0; i < bits && len(part) > 0; i++ {
		part[h.rng.IntN(len(part))] ^= 1 << h.rng.IntN(8)
	}
	return b
}

func (h *history) block(b []byte) []byte {
	at := blockBytes * h.rng.IntN(len(b)/blockBytes+1)
	return b[at:min(at+blockBytes, len(b))]
}

// earlier returns the state after one of the changes, except the last.
func (h *history) earlier() []byte {
	return slices.Clone(h.past[h.rng.IntN(len(h.past)-1)][stateFile])
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
		f, kinds := h.damaged()
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

// damaged returns files after one or two damages. Nothing in a directory shows that it is an
// older copy, or that it was emptied: so the state is not an earlier one as a whole, and not
// missing beside an empty lock file.
func (h *history) damaged() (f files, kinds string) {
	all := damages()
	for {
		f = h.past[len(h.past)-1].clone()
		first, second := all[h.rng.IntN(len(all))], all[h.rng.IntN(len(all))]
		kinds = first.name
		first.do(h, f)
		if _, ok := f[stateFile]; ok && h.rng.IntN(4) == 0 {
			kinds = "two"
			second.do(h, f)
		}
		b, ok := f[stateFile]
		isOlder := slices.ContainsFunc(h.past[:len(h.past)-1], func(old files) bool { return slices.Equal(old[stateFile], b) })
		if !isOlder && (ok || len(f[lockFileName]) > 0) {
			return f, kinds
		}
	}
}
