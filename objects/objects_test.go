package objects

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// A report is an object with everything that a vector cannot have.
type report struct {
	Rank   int
	Name   string
	Counts map[string]int
	Next   *report
	Loss   []float64
}

func reportOf(rank int) report {
	return report{
		Rank: rank, Name: strings.Repeat("ä", 1000*rank), Counts: map[string]int{"a": rank, "b": 2},
		Next: &report{Rank: -1}, Loss: slices.Repeat([]float64{0.5}, rank*rank),
	}
}

// dashed is a codec of a program, whose encoding of an empty string is empty.
type dashed struct{}

func (dashed) Marshal(v any) ([]byte, error) {
	return []byte(strings.ReplaceAll(*v.(*string), " ", "-")), nil
}
func (dashed) Unmarshal(b []byte, v any) error {
	*v.(*string) = strings.ReplaceAll(string(b), "-", " ")
	return nil
}

// same returns an error if a call has failed or has another result than want.
func same[T any](what string, got T, err error, want T) error {
	if err != nil || !reflect.DeepEqual(got, want) {
		return fmt.Errorf("%s: got %v and error %w, want %v", what, got, err, want)
	}
	return nil
}

// everyOperation calls all operations with objects of(i) of a type, and compares the results.
func everyOperation[T any](ctx context.Context, c *nexar.Comm, f Format[T], of func(i int) T) error {
	n, rank, last := c.Size(), c.Rank(), c.Size()-1
	list := make([]T, n) // of each rank
	for i := range list {
		list[i] = of(i)
	}
	var errs []error
	for root := range n {
		got, err := f.Broadcast(ctx, c, of(rank), root)
		errs = append(errs, same("broadcast", got, err, of(root)))
	}
	all, err := f.AllGather(ctx, c, of(rank))
	errs = append(errs, same("all-gather", all, err, list))
	all, err = f.Gather(ctx, c, of(rank), last)
	if rank == last {
		errs = append(errs, same("gather", all, err, list))
	} else {
		errs = append(errs, same("gather", all, err, nil))
	}
	var vs []T
	if rank == last {
		vs = list
	}
	own, err := f.Scatter(ctx, c, vs, last)
	errs = append(errs, same("scatter", own, err, of(rank)))
	row, column := make([]T, n), make([]T, n)
	for i := range n {
		row[i], column[i] = of(2*rank+i), of(2*i+rank)
	}
	all, err = f.AllToAll(ctx, c, row)
	errs = append(errs, same("all-to-all", all, err, column))
	if n > 1 {
		errs = append(errs, f.Send(ctx, c, of(rank), (rank+1)%n, 5))
		before := (rank + n - 1) % n
		own, status, err := f.Recv(ctx, c, nexar.AnyRank, nexar.AnyTag)
		errs = append(errs, same("recv", own, err, of(before)))
		if status.Source != before || status.Tag != 5 {
			errs = append(errs, fmt.Errorf("recv: status %+v, want rank %d and tag 5", status, before))
		}
	}
	return errors.Join(errs...)
}

// TestOperations: all operations, over several media, with several codecs.
func TestOperations(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.MemLinks(), worldtest.QUIC()) {
		for _, ranks := range []int{1, 2, 5} {
			t.Run(fmt.Sprintf("%s/ranks=%d", m.Name, ranks), func(t *testing.T) {
				worldtest.OnAll(t, m.Cluster(t, ranks, nexar.Config{}), func(_ int, c *nexar.Comm) error {
					return errors.Join(
						everyOperation(t.Context(), c, Format[report]{}, reportOf),
						everyOperation(t.Context(), c, Format[*report]{Codec: nexar.Gob{}}, func(i int) *report { return &report{Rank: i + 1, Name: "gob"} }),
						everyOperation(t.Context(), c, Format[string]{Codec: dashed{}}, func(i int) string { return strings.Repeat(" x", i) }),
						everyOperation(t.Context(), c, Format[any]{}, func(i int) any { return []any{nil, map[string]any{}, float64(i), "", false}[i%5] }),
						everyOperation(t.Context(), c, Format[map[string]int]{}, func(i int) map[string]int { return []map[string]int{nil, {}, {"": i}}[i%3] }),
						everyOperation(t.Context(), c, Format[[]byte]{}, func(i int) []byte { return [][]byte{nil, {}, make([]byte, 200_000)}[i%3] }),
					)
				})
			})
		}
	}
}

// TestFunctions: the functions of the package encode as JSON.
func TestFunctions(t *testing.T) {
	worldtest.OnAll(t, worldtest.Mem().Cluster(t, 3, nexar.Config{}), func(rank int, c *nexar.Comm) error {
		ctx := t.Context()
		type hidden struct{ Shown, hidden int }
		one, err := Broadcast(ctx, c, hidden{rank, rank}, 1)
		errs := []error{same("broadcast", one, err, hidden{1, 0})}
		all, err := AllGather(ctx, c, []string{"a", "b", "c"}[rank])
		errs = append(errs, same("all-gather", all, err, []string{"a", "b", "c"}))
		all, err = Gather(ctx, c, []string{"a", "b", "c"}[rank], 0)
		if rank > 0 {
			errs = append(errs, same("gather", all, err, nil))
		} else {
			errs = append(errs, same("gather", all, err, []string{"a", "b", "c"}))
		}
		two, err := Scatter(ctx, c, []int{10, 11, 12}, 2)
		errs = append(errs, same("scatter", two, err, 10+rank))
		ints, err := AllToAll(ctx, c, []int{10 * rank, 10*rank + 1, 10*rank + 2})
		errs = append(errs, same("all-to-all", ints, err, []int{rank, 10 + rank, 20 + rank}))
		errs = append(errs, Send(ctx, c, true, (rank+1)%3, 0))
		got, status, err := Recv[bool](ctx, c, (rank+2)%3, 0)
		errs = append(errs, same("recv", got, err, true))
		if status != (nexar.Status{Source: (rank + 2) % 3, Count: len("true")}) {
			errs = append(errs, fmt.Errorf("status %+v", status))
		}
		return errors.Join(errs...)
	})
}

// TestResultIsApart: a rank does not get its own argument back, whose memory it could change.
func TestResultIsApart(t *testing.T) {
	worldtest.OnAll(t, worldtest.Mem().Cluster(t, 2, nexar.Config{}), func(rank int, c *nexar.Comm) error {
		own := map[string]int{"a": 1}
		got, err := Broadcast(t.Context(), c, own, 0)
		all, err2 := AllGather(t.Context(), c, own)
		own["a"] = 2
		if err = errors.Join(err, err2); err != nil || got["a"] != 1 || all[rank]["a"] != 1 {
			return fmt.Errorf("got %v and %v, error %w", got, all, err)
		}
		return nil
	})
}

// TestNoRank: messages to and from NoRank do nothing.
func TestNoRank(t *testing.T) {
	worldtest.OnAll(t, worldtest.Mem().Cluster(t, 1, nexar.Config{}), func(_ int, c *nexar.Comm) error {
		if err := Send(t.Context(), c, "x", nexar.NoRank, 0); err != nil {
			return err
		}
		got, status, err := Recv[string](t.Context(), c, nexar.NoRank, 0)
		if want := (nexar.Status{Source: nexar.NoRank, Tag: nexar.AnyTag}); got != "" || status != want || err != nil {
			return fmt.Errorf("got %q, status %+v and error %w, want %+v", got, status, err, want)
		}
		return nil
	})
}

// TestMessageToItself: a rank receives a long object of its own, from another goroutine.
func TestMessageToItself(t *testing.T) {
	worldtest.OnAll(t, worldtest.Mem().Cluster(t, 1, nexar.Config{}), func(_ int, c *nexar.Comm) error {
		sent := make(chan error)
		long := strings.Repeat("x", 1<<20)
		go func() { sent <- Send(t.Context(), c, long, 0, 0) }()
		got, _, err := Recv[string](t.Context(), c, 0, 0)
		if err = errors.Join(err, <-sent); err != nil || got != long {
			return fmt.Errorf("got %d bytes, error %w", len(got), err)
		}
		return nil
	})
}

// A greedy codec appends to the bytes that it decodes.
type greedy struct{ nexar.JSON }

func (greedy) Unmarshal(b []byte, v any) error {
	err := nexar.JSON{}.Unmarshal(b, v)
	_ = append(b, 'x')
	return err
}

// TestGreedyCodec: the bytes of an object are its own, also if a codec appends to them.
func TestGreedyCodec(t *testing.T) {
	worldtest.OnAll(t, worldtest.Local(t, 3, nexar.Config{}), func(rank int, c *nexar.Comm) error {
		got, err := Format[int]{Codec: greedy{}}.AllGather(t.Context(), c, 10+rank)
		if err == nil && !slices.Equal(got, []int{10, 11, 12}) {
			err = fmt.Errorf("%v, want [10 11 12]", got)
		}
		return err
	})
}

// A half codec decodes something before it fails.
type half struct{ nexar.JSON }

func (half) Unmarshal(b []byte, v any) error {
	return errors.Join(nexar.JSON{}.Unmarshal(b, v), errFaulty)
}

// TestNothingAfterError: objects decoded before an error are not returned.
func TestNothingAfterError(t *testing.T) {
	worldtest.OnAll(t, worldtest.Local(t, 2, nexar.Config{}), func(_ int, c *nexar.Comm) error {
		got, err := Format[int]{Codec: half{}}.Broadcast(t.Context(), c, 7, 0)
		if !errors.Is(err, errFaulty) || got != 0 {
			return fmt.Errorf("%d and error %w, want 0 and a DecodeError", got, err)
		}
		return nil
	})
}

// TestCutText: a long error is cut to valid UTF-8, and a message with a longer text is refused.
func TestCutText(t *testing.T) {
	comms := worldtest.Local(t, 1, nexar.Config{})
	k := Format[string]{}.call(comms[0], "send", 0)
	for shift := range 3 {
		text := k.text(errors.New(strings.Repeat("x", shift) + strings.Repeat("ä", textMax)))
		if !utf8.ValidString(text) || len(text) < textMax-1 || len(text) > textMax {
			t.Errorf("a text of %d bytes, valid: %t, want %d bytes of UTF-8", len(text), utf8.ValidString(text), textMax)
		}
	}
	for _, kind := range []byte{objectKind, errorKind} {
		for n, want := range map[int]bool{textMax: true, textMax + 1: false} {
			if _, _, _, ok := parse(head(kind, strings.Repeat("x", n))); ok != want {
				t.Errorf("%c: a text of %d bytes is accepted: %t, want %t", kind, n, ok, want)
			}
		}
	}
}
