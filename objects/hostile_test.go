package objects

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// noticeOf returns a valid notice of a call with objects of the given lengths.
func noticeOf(k *call, sizes ...int64) []int64 {
	n := k.notice(nil, false, len(k.text(nil)))
	copy(n[noticeSizes:], sizes)
	return n
}

// with returns a copy of a notice with another element.
func with(notice []int64, i int, value int64) []int64 {
	notice = slices.Clone(notice)
	notice[i] = value
	return notice
}

// TestHostileNotice: an invalid notice, or one of enormous objects, is the same error on all other ranks, which allocate nothing.
func TestHostileNotice(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
	for _, op := range operations()[:5] {
		f := Format[string]{Codec: new(faulty)}
		k := f.call(comms[2], op.name, 1)
		if !k.hasRoot() {
			k.root = 0
		}
		good := noticeOf(k, 3)
		for _, test := range []struct {
			notice []int64
			want   string
		}{
			{with(good, noticeText, -1), "rank 2 has sent an invalid notice"},
			{with(good, noticeText, textMax+1), "rank 2 has sent an invalid notice"},
			{with(good, noticeFailed, 2), "rank 2 has sent an invalid notice"},
			{with(good, noticeFailed, -1), "rank 2 has sent an invalid notice"},
			{with(good, noticeLimit, 0), "rank 2 has sent an invalid notice"},
			{with(good, noticeLimit, math.MinInt64), "rank 2 has sent an invalid notice"},
			{with(good, len(good)-1, -1), "rank 2 has sent an invalid notice"},
			{with(good, noticeSizes, math.MaxInt64), fmt.Sprintf("too large: .* %d bytes, %d of them .* rank 2", math.MaxInt64, math.MaxInt64)},
			{with(good, noticeSizes, DefaultMaxBytes), "too large: .* of them .* rank 2"},
			{with(good, noticeLimit, 1), "too large: .* and the limit is 1, MaxBytes of rank 2"},
		} {
			worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
				if rank == 2 {
					return nexar.AllGather(t.Context(), c, make([]int64, 3*len(test.notice)), test.notice)
				}
				if err := op.call(t.Context(), c, f); !matches(test.want, err) {
					return fmt.Errorf("%s, notice %d: got error %w, want %s", op.name, test.notice, err, test.want)
				}
				return nil
			})
		}
	}
	worldtest.CheckWorks(t, comms)
}

// matches reports whether the parts of pattern, which " .* " separates, occur in the text of an error in their order.
func matches(pattern string, err error) bool {
	text := fmt.Sprint(err)
	for part := range strings.SplitSeq(pattern, ".*") {
		_, after, found := strings.Cut(text, part)
		if !found {
			return false
		}
		text = after
	}
	return true
}

// TestHostileText: the text of an error of another rank is bounded, and has no characters that a terminal would interpret.
func TestHostileText(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	k := Format[string]{}.call(comms[1], "all_gather", 0)
	text := "all_gather\n\x1b[31m\xff" + strings.Repeat("\x00", textMax)
	text = text[:textMax]
	notice := with(with(noticeOf(k), noticeFailed, 1), noticeText, textMax)
	for _, digest := range []int64{notice[noticeCall], 1} {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			if rank == 1 {
				own := make([]byte, len(k.text(nil)))
				err := nexar.AllGather(t.Context(), c, make([]int64, 2*len(notice)), with(notice, noticeCall, digest))
				if digest == 1 { // a mismatch: rank 0 tells its call as well
					err = errors.Join(err, nexar.Broadcast(t.Context(), c, own, 0))
				}
				return errors.Join(err, nexar.Broadcast(t.Context(), c, []byte(text), 1))
			}
			_, err := AllGather(t.Context(), c, "x")
			if err == nil || strings.ContainsAny(err.Error(), "\x1b\x00\n") || !utf8.ValidString(err.Error()) || !strings.Contains(err.Error(), "rank 1") {
				return fmt.Errorf("got error %w", err)
			}
			return nil
		})
	}
	worldtest.CheckWorks(t, comms)
}

// TestHostileScatter: blocks that contradict the notice of root are the same error on all other ranks.
func TestHostileScatter(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
	k := Format[string]{}.call(comms[1], "scatter", 1)
	for _, counts := range [][]int{{3, 3, 2}, {-3, 9, 3}, {3, 3, 4}, {10, -4, 3}, {math.MaxInt, math.MaxInt, 11}, {0, 0, math.MinInt}} {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			if rank == 1 {
				return errors.Join(nexar.AllGather(t.Context(), c, make([]int64, 3*(noticeSizes+1)), noticeOf(k, 9)), nexar.Broadcast(t.Context(), c, slices.Clone(counts), 1))
			}
			_, err := Scatter[string](t.Context(), c, nil, 1)
			if want := fmt.Sprintf("objects: scatter: rank 1 has announced 9 bytes, and then blocks of %d", counts); err == nil || err.Error() != want {
				return fmt.Errorf("got error %w, want %s", err, want)
			}
			return nil
		})
	}
	worldtest.CheckWorks(t, comms)
}

// TestHostileObject: bytes that are no object are a DecodeError that names the rank.
func TestHostileObject(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
	k := Format[string]{}.call(comms[1], "all_gather", 0)
	bytes := []byte(`"\ud800`)
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		counts := []int{3, len(bytes), 3}
		if rank == 1 {
			return errors.Join(nexar.AllGather(t.Context(), c, make([]int64, 3*(noticeSizes+1)), noticeOf(k, int64(len(bytes)))),
				nexar.AllGatherV(t.Context(), c, make([]byte, sum(counts)), bytes, counts))
		}
		all, err := AllGather(t.Context(), c, "x")
		if e, ok := errors.AsType[*DecodeError](err); !ok || e.Rank != 1 || all != nil {
			return fmt.Errorf("got %q and error %w, want a DecodeError of rank 1", all, err)
		}
		return nil
	})
	worldtest.CheckWorks(t, comms)
}

// FuzzMessage: any message is an object, or an error that names its sender.
func FuzzMessage(f *testing.F) {
	comms, err := nexar.Local(f.Context(), 1, nexar.Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { comms[0].Close() })
	format := Format[report]{MaxBytes: 1 << 10}
	k := format.call(comms[0], "recv", 0)
	object, err := format.encode(report{Rank: 1, Counts: map[string]int{"a": 1}, Next: new(report)})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(head(objectKind, k.formatText()), object[0]...))
	f.Add(append(head(objectKind, k.formatText()), strings.Repeat("[", 1<<10)...))
	f.Add(append(head(objectKind, "int by nexar.JSON"), "7"...))
	f.Add(head(errorKind, "send of int\n\x1b[31mno"))
	f.Add([]byte{objectKind, 0xff, 0xff})
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, message []byte) {
		object, err := k.object(3, message)
		if err == nil {
			if len(object) > k.limit {
				t.Errorf("an object of %d bytes is accepted", len(object))
			}
			_, err = format.decode(k, 3, object)
		}
		if err != nil && (!strings.Contains(err.Error(), "rank 3") || strings.ContainsAny(err.Error(), "\x1b\x00\n")) {
			t.Errorf("error %q", err)
		}
	})
}

// FuzzNotices: notices with any content are refused with an error, or all ranks have made the same call, and no rank sends or receives more than
// the limit.
func FuzzNotices(f *testing.F) {
	comms, err := nexar.Local(f.Context(), 3, nexar.Config{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		for _, c := range comms {
			c.Close()
		}
	})
	names := []string{"broadcast", "gather", "all_gather", "scatter", "all_to_all"}
	for i, name := range names {
		k := Format[int]{MaxBytes: 1000}.call(comms[0], name, 1)
		for _, sizes := range [][]int64{{100, 100, 100}, {900, 900, 900}, {math.MaxInt64, 1, 1}} {
			var encoded []byte
			for range 3 {
				for _, v := range noticeOf(k, sizes...) {
					encoded = binary.LittleEndian.AppendUint64(encoded, uint64(v))
				}
			}
			f.Add(uint8(i), encoded)
		}
	}
	f.Fuzz(func(t *testing.T, op uint8, encoded []byte) {
		k := Format[int]{MaxBytes: 1000}.call(comms[0], names[int(op)%len(names)], 1)
		width := len(noticeOf(k))
		n := notices{flat: make([]int64, 3*width), width: width}
		for i := range n.flat {
			if len(encoded) < 8*(i+1) {
				return
			}
			n.flat[i] = int64(binary.LittleEndian.Uint64(encoded[8*i:]))
		}
		rank, v, err := k.judge(n)
		switch {
		case rank < 0 || rank > 2 || (v == refused) != (err != nil):
			t.Fatalf("rank %d, verdict %d, error %v", rank, v, err)
		case v == refused:
			return
		case n.of(rank)[noticeText] < 0 || n.of(rank)[noticeText] > textMax || n.of(0)[noticeText] < 0 || n.of(0)[noticeText] > textMax:
			t.Fatalf("text of %d bytes", n.of(rank)[noticeText])
		case v != agreed:
			return
		}
		total := int64(0)
		for r := range 3 {
			for _, size := range n.sizes(r) {
				if size < 0 || size > n.of(r)[noticeLimit] {
					t.Fatalf("an object of %d bytes is accepted", size)
				}
			}
			total += n.sizes(r)[0] // what rank 0 receives, at most
		}
		for r := range 3 {
			if n.of(r)[noticeCall] != n.of(0)[noticeCall] || n.of(r)[noticeFailed] != 0 || total > n.of(r)[noticeLimit] {
				t.Fatalf("accepted: %d", n.flat)
			}
		}
	})
}
