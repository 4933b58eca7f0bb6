package objects

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// errFaulty is the error of a faulty codec.
var errFaulty = errors.New("the dog ate it\x1b[2J")

// A faulty codec fails, panics or ends its goroutine, in Marshal on some ranks, or in Unmarshal.
type faulty struct {
	marshal, unmarshal func() error // nil: as JSON
}

func (f *faulty) Marshal(v any) ([]byte, error) {
	if f.marshal != nil {
		return nil, f.marshal()
	}
	return nexar.JSON{}.Marshal(v)
}

func (f *faulty) Unmarshal(b []byte, v any) error {
	if f.unmarshal != nil {
		return f.unmarshal()
	}
	return nexar.JSON{}.Unmarshal(b, v)
}

// An operation makes a call on a rank of three. root is 1, if it has one; a message goes from rank 1 to rank 2.
type operation struct {
	name string
	// senders are the ranks that encode objects, and receivers those that decode them.
	senders, receivers []int
	call               func(ctx context.Context, c *nexar.Comm, f Format[string]) error
}

func operations() []operation {
	all, root := []int{0, 1, 2}, []int{1}
	return []operation{
		{"broadcast", root, all, func(ctx context.Context, c *nexar.Comm, f Format[string]) error {
			_, err := f.Broadcast(ctx, c, "x", 1)
			return err
		}},
		{"gather", all, root, func(ctx context.Context, c *nexar.Comm, f Format[string]) error {
			_, err := f.Gather(ctx, c, "x", 1)
			return err
		}},
		{"all_gather", all, all, func(ctx context.Context, c *nexar.Comm, f Format[string]) error {
			_, err := f.AllGather(ctx, c, "x")
			return err
		}},
		{"scatter", root, all, func(ctx context.Context, c *nexar.Comm, f Format[string]) error {
			_, err := f.Scatter(ctx, c, []string{"x", "x", "x"}, 1)
			return err
		}},
		{"all_to_all", all, all, func(ctx context.Context, c *nexar.Comm, f Format[string]) error {
			_, err := f.AllToAll(ctx, c, []string{"x", "x", "x"})
			return err
		}},
		{"send", root, nil, func(ctx context.Context, c *nexar.Comm, f Format[string]) error {
			switch c.Rank() {
			case 1:
				return f.Send(ctx, c, "x", 2, 7)
			case 2:
				_, _, err := f.Recv(ctx, c, 1, 7)
				return err
			}
			return nil
		}},
	}
}

// TestEncodeError: if the objects of a rank cannot be encoded, all ranks get the same error at once, and the communicator can still be
// used.
func TestEncodeError(t *testing.T) {
	for _, op := range operations() {
		for _, bad := range op.senders {
			m := worldtest.Mem()
			if bad == 1 {
				m = worldtest.QUIC()
			}
			t.Run(fmt.Sprintf("%s/%s/rank=%d", op.name, m.Name, bad), func(t *testing.T) {
				comms := m.Cluster(t, 3, nexar.Config{})
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					codec := new(faulty)
					if rank == bad {
						codec.marshal = func() error { return errFaulty }
					}
					err := op.call(t.Context(), c, Format[string]{Codec: codec})
					if op.name == "send" && rank == 0 {
						return err
					}
					name := op.name
					if name == "send" && rank == 2 {
						name = "recv"
					}
					e, ok := errors.AsType[*EncodeError](err)
					want := fmt.Sprintf("objects: %s: rank %d cannot encode its string: the dog ate it\uFFFD[2J", name, bad)
					if !ok || e.Rank != bad || e.Op != name || e.Type != "string" || err.Error() != want || errors.Is(err, errFaulty) != (rank == bad) {
						return fmt.Errorf("got error %w, want %s", err, want)
					}
					codec.marshal = nil
					return op.call(t.Context(), c, Format[string]{Codec: codec})
				})
				worldtest.CheckWorks(t, comms)
			})
		}
	}
}

// TestEncodePanic: if the codec of a rank panics or ends its goroutine, so does the call, and the other ranks get an error.
func TestEncodePanic(t *testing.T) {
	for _, op := range operations() {
		for _, exit := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/exit=%v", op.name, exit), func(t *testing.T) {
				comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					codec := new(faulty)
					if rank != 1 {
						err := op.call(t.Context(), c, Format[string]{Codec: codec})
						if e, ok := errors.AsType[*EncodeError](err); (!ok || e.Rank != 1 || e.Err.Error() != errExited.Error()) && !(op.name == "send" && rank == 0) {
							return fmt.Errorf("got error %w, want an EncodeError of rank 1", err)
						}
						return nil
					}
					codec.marshal = func() error {
						if exit {
							runtime.Goexit()
						}
						panic("no string")
					}
					var value any
					returned := false
					ended := make(chan struct{})
					go func() {
						defer close(ended)
						defer func() { value = recover() }()
						_ = op.call(t.Context(), c, Format[string]{Codec: codec})
						returned = true
					}()
					<-ended
					if returned || !exit && value != "no string" {
						return fmt.Errorf("returned: %v, panic with %v", returned, value)
					}
					return nil
				})
				worldtest.CheckWorks(t, comms)
			})
		}
	}
}

// TestDecodeError: the ranks that decode the objects get an error that names the rank, and the communicator can still be used. A panic
// of the codec is an error too.
func TestDecodeError(t *testing.T) {
	for _, op := range operations() {
		for _, panics := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/panics=%v", op.name, panics), func(t *testing.T) {
				comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					codec := &faulty{unmarshal: func() error {
						if panics {
							panic(errFaulty)
						}
						return errFaulty
					}}
					err := op.call(t.Context(), c, Format[string]{Codec: codec})
					receives := op.name == "send" && rank == 2
					for _, r := range op.receivers {
						receives = receives || rank == r
					}
					if !receives {
						return err
					}
					from := 1 // the root or the sender, and otherwise the first rank
					if len(op.senders) == 3 {
						from = 0
					}
					e, ok := errors.AsType[*DecodeError](err)
					if !ok || e.Rank != from || e.Type != "string" || !panics && !errors.Is(err, errFaulty) || !worldtest.HasText(err, fmt.Sprintf("the string of rank %d cannot be decoded: ", from)) {
						return fmt.Errorf("got error %w, want a DecodeError of rank %d", err, from)
					}
					return nil
				})
				worldtest.CheckWorks(t, comms)
			})
		}
	}
}

// TestTooLarge: objects above the limit are the same error on all ranks, before memory is allocated for them. Exactly as many bytes are allowed.
func TestTooLarge(t *testing.T) {
	const object = len(`"x"`)
	for _, op := range operations() {
		room := object
		if len(op.senders) == 3 || op.name == "scatter" {
			room *= 3
		}
		for _, low := range []int{0, 1, 2} { // the rank with a lower limit
			t.Run(fmt.Sprintf("%s/rank=%d", op.name, low), func(t *testing.T) {
				comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
				texts := make([]string, 3)
				worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
					f := Format[string]{MaxBytes: room}
					if err := op.call(t.Context(), c, f); err != nil {
						return fmt.Errorf("%d bytes are allowed: %w", room, err)
					}
					if rank == low {
						f.MaxBytes = room - 1
					}
					err := op.call(t.Context(), c, f)
					if op.name == "send" && (low == 0 || rank < low) {
						return err // The receiver alone has the lower limit, or none.
					}
					texts[rank] = strings.NewReplacer("recv", "", "send", "").Replace(fmt.Sprint(err))
					if !errors.Is(err, nexar.ErrTooLarge) && op.name != "send" || !worldtest.HasText(err, fmt.Sprintf("the limit is %d", room-1)) || !worldtest.HasText(err, "raise Format.MaxBytes") ||
						!worldtest.HasText(err, fmt.Sprintf("rank %d", low)) && op.name != "send" {
						return fmt.Errorf("got error %w", err)
					}
					return nil
				})
				if texts[0] != texts[2] && op.name != "send" || texts[1] != texts[2] && low != 2 {
					t.Errorf("not the same errors: %q", texts)
				}
				worldtest.CheckWorks(t, comms)
			})
		}
	}
}

// TestTooLargeText: the error has the rank, the size, the limit and the option.
func TestTooLargeText(t *testing.T) {
	worldtest.OnAll(t, worldtest.Mem().Cluster(t, 3, nexar.Config{}), func(rank int, c *nexar.Comm) error {
		f := Format[string]{MaxBytes: 1000}
		_, err := f.AllGather(t.Context(), c, strings.Repeat("x", 500*rank))
		want := "objects: all_gather: too large: the objects of all ranks have 1506 bytes, 1002 of them of rank 2, and the limit is 1000, MaxBytes of rank 0: raise Format.MaxBytes on all ranks"
		if err == nil || err.Error() != want {
			return fmt.Errorf("got %w, want %s", err, want)
		}
		_, err = f.AllToAll(t.Context(), c, []string{"", strings.Repeat("x", 400*rank), ""})
		want = "objects: all_to_all: too large: rank 1 would receive 1206 bytes, 802 of them from rank 2, and the limit is 1000, MaxBytes of rank 0: raise Format.MaxBytes on all ranks"
		if err == nil || err.Error() != want {
			return fmt.Errorf("got %w, want %s", err, want)
		}
		return nil
	})
}

// TestMismatch: if ranks make different calls, or use different types or codecs, all get the same error, and the communicator can still be used.
func TestMismatch(t *testing.T) {
	ctx := t.Context()
	for _, test := range []struct {
		name         string
		zero, two    func(c *nexar.Comm) error // of ranks 0 and 1, and of rank 2
		first, other string
	}{
		{"types", func(c *nexar.Comm) error { _, err := AllGather(ctx, c, 1); return err },
			func(c *nexar.Comm) error { _, err := AllGather(ctx, c, "1"); return err }, "all_gather of int by nexar.JSON", "all_gather of string by nexar.JSON"},
		{"codecs", func(c *nexar.Comm) error { _, err := Broadcast(ctx, c, report{}, 0); return err },
			func(c *nexar.Comm) error {
				_, err := Format[report]{Codec: nexar.Gob{}}.Broadcast(ctx, c, report{}, 0)
				return err
			},
			"broadcast of objects.report by nexar.JSON from root 0", "broadcast of objects.report by nexar.Gob from root 0"},
		{"roots", func(c *nexar.Comm) error { _, err := Gather(ctx, c, 1, 0); return err },
			func(c *nexar.Comm) error { _, err := Gather(ctx, c, 1, 2); return err }, "gather of int by nexar.JSON from root 0", "gather of int by nexar.JSON from root 2"},
		{"operations", func(c *nexar.Comm) error { _, err := Gather(ctx, c, 1, 0); return err },
			func(c *nexar.Comm) error { _, err := AllGather(ctx, c, 1); return err }, "gather of int by nexar.JSON from root 0", "all_gather of int by nexar.JSON"},
		{"one that cannot encode", func(c *nexar.Comm) error { _, err := AllGather(ctx, c, 1); return err },
			func(c *nexar.Comm) error { _, err := AllGather(ctx, c, make(chan int)); return err }, "all_gather of int by nexar.JSON", "all_gather of chan int by nexar.JSON"},
	} {
		t.Run(test.name, func(t *testing.T) {
			comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
			worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
				call := test.zero
				if rank == 2 {
					call = test.two
				}
				err := call(c)
				want := fmt.Sprintf("calls do not match: rank 0 called %s, rank 2 called %s", test.first, test.other)
				if !errors.Is(err, ErrMismatch) || !strings.HasSuffix(err.Error(), want) {
					return fmt.Errorf("got error %w, want %s", err, want)
				}
				return nil
			})
			worldtest.CheckWorks(t, comms)
		})
	}
}

// TestMismatchOfMessages: a message of another type, of another codec or without an object is an error that says so, and is lost.
func TestMismatchOfMessages(t *testing.T) {
	for _, test := range []struct {
		send func(ctx context.Context, c *nexar.Comm) error
		is   error
		want string
	}{
		{func(ctx context.Context, c *nexar.Comm) error { return Send(ctx, c, 7, 1, 0) }, ErrMismatch,
			"rank 0 has sent int by nexar.JSON, this rank receives string by nexar.JSON"},
		{func(ctx context.Context, c *nexar.Comm) error {
			return Format[string]{Codec: nexar.Gob{}}.Send(ctx, c, "x", 1, 0)
		}, ErrMismatch,
			"rank 0 has sent string by nexar.Gob, this rank receives string by nexar.JSON"},
		{func(ctx context.Context, c *nexar.Comm) error { return nexar.Send(ctx, c, []byte("hello"), 1, 0) }, ErrMismatch, "the message of 5 bytes is none of objects.Send"},
		{func(ctx context.Context, c *nexar.Comm) error {
			return nexar.Send(ctx, c, []byte{objectKind, 0, 9, 'x'}, 1, 0)
		}, ErrMismatch, "the message of 4 bytes is none of objects.Send"},
		{func(ctx context.Context, c *nexar.Comm) error { return nexar.Send[byte](ctx, c, nil, 1, 0) }, ErrMismatch, "the message of 0 bytes"},
		{func(ctx context.Context, c *nexar.Comm) error { return nexar.Send(ctx, c, []float64{1, 2}, 1, 0) }, nexar.ErrTypeMismatch, "float64 from rank 0"},
		{func(ctx context.Context, c *nexar.Comm) error {
			return nexar.Send(ctx, c, append(head(objectKind, "string by nexar.JSON"), `"x`...), 1, 0)
		}, nil, "the string of rank 0 cannot be decoded: unexpected end of JSON input"},
		{func(ctx context.Context, c *nexar.Comm) error {
			return nexar.Send(ctx, c, head(errorKind, "send\n\x1b]0;"), 1, 0)
		}, nil, "rank 0 cannot encode its string: \uFFFD]0;"},
	} {
		comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			if rank == 0 {
				return errors.Join(test.send(t.Context(), c), Send(t.Context(), c, "next", 1, 0))
			}
			_, _, err := Recv[string](t.Context(), c, 0, 0)
			if test.is != nil && !errors.Is(err, test.is) || !worldtest.HasText(err, test.want) {
				return fmt.Errorf("got error %w, want %s", err, test.want)
			}
			got, _, err := Recv[string](t.Context(), c, 0, 0)
			return same("next message", got, err, "next")
		})
		worldtest.CheckWorks(t, comms)
	}
}

// TestTooLargeMessage: a message that is much too large is dropped before memory is allocated for it, also one that its sender has only announced.
func TestTooLargeMessage(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 2, nexar.Config{})
	for _, size := range []int{textMax + headBytes + 100, 1 << 20} {
		worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
			if rank == 0 {
				if err := Send(t.Context(), c, strings.Repeat("x", size), 1, 0); err != nil && !errors.Is(err, nexar.ErrTruncated) {
					return err
				}
				return Send(t.Context(), c, "next", 1, 0)
			}
			f := Format[string]{MaxBytes: 50}
			_, _, err := f.Recv(t.Context(), c, 0, 0)
			e, ok := errors.AsType[*DecodeError](err)
			if !ok || e.Rank != 0 || !errors.Is(err, nexar.ErrTooLarge) || !worldtest.HasText(err, "it has more than ") || !worldtest.HasText(err, "the limit is 50: raise Format.MaxBytes") {
				return fmt.Errorf("got error %w", err)
			}
			got, _, err := f.Recv(t.Context(), c, 0, 0)
			return same("next message", got, err, "next")
		})
	}
	worldtest.CheckWorks(t, comms)
}

// TestWrongNumber: if a rank passes too few objects, all ranks get the same error. An invalid root is an error at once.
func TestWrongNumber(t *testing.T) {
	comms := worldtest.Mem().Cluster(t, 3, nexar.Config{})
	worldtest.OnAll(t, comms, func(rank int, c *nexar.Comm) error {
		vs := make([]int, 3)
		if rank == 2 {
			vs = vs[:2]
		}
		_, scatter := Scatter(t.Context(), c, vs, 2)
		_, toAll := AllToAll(t.Context(), c, vs)
		for _, err := range []error{scatter, toAll} {
			e, ok := errors.AsType[*EncodeError](err)
			if !ok || e.Rank != 2 || e.Err.Error() != "invalid length: 2 objects for 3 ranks" || errors.Is(err, nexar.ErrInvalidLength) != (rank == 2) {
				return fmt.Errorf("got error %w", err)
			}
		}
		for _, root := range []int{-1, 3, nexar.NoRank} {
			if _, err := Broadcast(t.Context(), c, 1, root); !errors.Is(err, nexar.ErrInvalidRank) {
				return fmt.Errorf("root %d: got error %w", root, err)
			}
		}
		return nil
	})
	worldtest.CheckWorks(t, comms)
}

// TestCancel: a cancelled collective revokes the communicator. A receive that is cancelled before a message has arrived loses none.
func TestCancel(t *testing.T) {
	worldtest.OnAll(t, worldtest.Mem().Cluster(t, 2, nexar.Config{}), func(rank int, c *nexar.Comm) error {
		if rank == 0 {
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if _, _, err := Recv[int](ctx, c, 1, 0); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("recv: got error %w", err)
			}
			got, _, err := Recv[int](t.Context(), c, 1, 0)
			if err := same("recv", got, err, 7); err != nil {
				return err
			}
			if _, err := AllGather(ctx, c, 1); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("all-gather: got error %w", err)
			}
			return nil
		}
		if err := Send(t.Context(), c, 7, 0, 0); err != nil {
			return err
		}
		if _, err := AllGather(t.Context(), c, 1); !errors.Is(err, nexar.ErrRevoked) {
			return fmt.Errorf("all-gather: got error %w, want ErrRevoked", err)
		}
		return nil
	})
}
