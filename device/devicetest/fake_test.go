package devicetest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/device"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestFake(t *testing.T) {
	for name, cfg := range map[string]FakeConfig{
		"default":     {},
		"no delays":   {DelayMax: -1},
		"long delays": {DelayMax: time.Millisecond, Seed: 7},
		"small":       {Memory: 8 << 20, StagingMemory: 8 << 20, Name: "fake:1"},
	} {
		t.Run(name, func(t *testing.T) {
			Run(t, func(tb testing.TB) device.Device { return NewFake(tb, cfg) })
		})
	}
}

// A fakeCheck is a check of a Fake. Errors of Close do not fail the test.
type fakeCheck struct {
	*check
	fake *Fake
}

// newFakeCheck returns a fakeCheck that fails t.
func newFakeCheck(t *testing.T, cfg FakeConfig) fakeCheck {
	r := &recorder{TB: t}
	f := NewFake(r, cfg)
	t.Cleanup(func() { f.Close() })
	return fakeCheck{&check{TB: t, d: f, ctx: t.Context(), rng: rand.New(rand.NewPCG(1, 2))}, f}
}

// wantClose checks that Close reports problems with the given texts, in order, and no others.
func (x fakeCheck) wantClose(want ...string) {
	x.Helper()
	err := x.fake.Close()
	if len(want) == 0 {
		if err != nil {
			x.Errorf("Close: %v", err)
		}
		return
	}
	if err == nil {
		x.Errorf("Close reports no problem, want %q", want)
		return
	}
	var lines []string
	for line := range strings.Lines(err.Error()) {
		if !strings.HasPrefix(line, "\t") {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	if len(lines) != len(want) {
		x.Errorf("Close: %v\nwant %d problems: %q", err, len(want), want)
		return
	}
	for i := range want {
		if !strings.Contains(lines[i], want[i]) {
			x.Errorf("Close: problem %d is %q, want %q", i, lines[i], want[i])
		}
	}
}

// freeAll frees buffers and stagings before the end of the test.
func freeAll(t *testing.T, list ...freer) {
	t.Helper()
	for _, f := range list {
		if err := f.Free(); err != nil {
			t.Errorf("free: %v", err)
		}
	}
}

// TestFakeMemoryIsScrambled: the masks of all bytes are nonzero, and differ between buffers and
// offsets.
func TestFakeMemoryIsScrambled(t *testing.T) {
	x := newFakeCheck(t, FakeConfig{})
	zeros := make([]byte, 1000)
	a, b := x.alloc(1000), x.alloc(1000)
	x.copyIn(device.Whole(a), zeros)
	x.copyIn(device.Whole(b), zeros)
	first, second := a.(*buffer).mem, b.(*buffer).mem
	if i := slices.Index(first, 0); i >= 0 {
		t.Errorf("byte %d is not scrambled", i)
	}
	if slices.Equal(first, second) {
		t.Error("two buffers have the same masks")
	}
	if slices.Equal(first[:500], first[500:]) {
		t.Error("both halves of a buffer have the same masks")
	}
	// A copy of the memory by other means yields garbage.
	copy(second, first)
	got := make([]byte, 1000)
	x.must(x.d.CopyOut(x.ctx, got, device.Whole(b)), "copy out")
	if slices.Equal(got, zeros) {
		t.Error("a copy without the device has the right bytes")
	}
}

// TestFakeStagingIsPending: staging memory contains garbage until queued work has filled it, and
// the call that queues work does not do it.
func TestFakeStagingIsPending(t *testing.T) {
	x := newFakeCheck(t, FakeConfig{})
	s := x.stream()
	b, data := x.filled(100)
	st := x.staged(data)
	early := x.bytes(st)
	release := x.fake.Hold()
	x.must(s.StageSend(st, 10, device.Region{Buffer: b, Bytes: 80}), "stage send")
	x.same(early[10:90], slices.Repeat([]byte{pending}, 80), "staging of pending work")
	x.same(early[:10], data[:10], "staging without pending work")
	release()
	release() // no effect
	x.same(x.bytes(st)[10:90], data[:80], "staging")
	freeAll(t, st, b)
	x.must(s.Close(), "close")
	x.same(early, slices.Repeat([]byte{gone}, 100), "freed staging")
	x.wantClose()
}

// TestFakeHold: queued work is not done before all holds are released.
func TestFakeHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newFakeCheck(t, FakeConfig{})
		s, st := x.stream(), x.stage(100)
		b, _ := x.filled(100)
		first, second := x.fake.Hold(), x.fake.Hold()
		for _, release := range []func(){first, second} {
			x.must(s.StageSend(st, 0, device.Whole(b)), "stage send")
			time.Sleep(time.Hour)
			synctest.Wait()
			if got := x.fake.Stats().CopiesOut; got != 0 {
				t.Errorf("%d copies while the device was held, want 0", got)
			}
			release()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := x.fake.Stats().CopiesOut; got != 2 {
			t.Errorf("%d copies after the release, want 2", got)
		}
	})
}

func TestFakeFindsMisuse(t *testing.T) {
	const written = "write to a staging of 100 bytes while the device owned it"
	for name, test := range map[string]struct {
		misuse func(x fakeCheck, s device.Stream, st device.Staging, b device.Buffer)
		want   []string
	}{
		"none": {func(x fakeCheck, s device.Stream, st device.Staging, b device.Buffer) {
			x.must(s.StageSend(st, 0, device.Whole(b)), "stage send")
			x.must(s.ReceiveInto(st, 0, device.Whole(b)), "receive into")
			clear(x.bytes(st))
		}, nil},
		"write while it is filled": {func(x fakeCheck, s device.Stream, st device.Staging, b device.Buffer) {
			early := x.bytes(st)
			defer x.fake.Hold()()
			x.must(s.StageSend(st, 0, device.Whole(b)), "stage send")
			early[99]++
		}, []string{written + ": StageSend of 100 bytes"}},
		"write while it is read": {func(x fakeCheck, s device.Stream, st device.Staging, b device.Buffer) {
			early := x.bytes(st)
			defer x.fake.Hold()()
			x.must(s.ReceiveInto(st, 0, device.Whole(b)), "receive into")
			early[99]++
		}, []string{written + ": ReceiveInto of 100 bytes"}},
		"write to other bytes": {func(x fakeCheck, s device.Stream, st device.Staging, b device.Buffer) {
			early := x.bytes(st)
			defer x.fake.Hold()()
			x.must(s.StageSend(st, 0, device.Region{Buffer: b, Bytes: 50}), "stage send")
			x.must(s.ReceiveInto(st, 50, device.Region{Buffer: b, Bytes: 49}), "receive into")
			early[99]++
		}, nil},
		"write after free": {func(x fakeCheck, s device.Stream, st device.Staging, b device.Buffer) {
			early := x.bytes(st)
			x.must(st.Free(), "free")
			early[3]++
		}, []string{"write to a staging of 100 bytes after Free"}},
		"write long after free": {func(x fakeCheck, s device.Stream, st device.Staging, b device.Buffer) {
			early := x.bytes(st)
			x.must(st.Free(), "free")
			early[3]++
			for range 3 {
				x.must(x.stage(remainsMax/2).Free(), "free")
			}
			early[3]--
		}, []string{"write to a staging of 100 bytes after Free"}},
		"leaks": {func(x fakeCheck, s device.Stream, st device.Staging, b device.Buffer) {
			for _, allocate := range []func() error{
				func() error { _, err := x.fake.Alloc(x.ctx, 33); return err },
				func() error { _, err := x.fake.Stage(x.ctx, 44); return err },
				func() error { _, err := x.fake.NewStream(); return err },
			} {
				x.must(allocate(), "allocate")
			}
		}, []string{"a buffer of 33 bytes was not freed", "a staging of 44 bytes was not freed", "a stream was not closed"}},
	} {
		t.Run(name, func(t *testing.T) {
			x := newFakeCheck(t, FakeConfig{})
			s, st, b := x.stream(), x.stage(100), x.alloc(100)
			test.misuse(x, s, st, b)
			x.wait(s)
			x.must(s.Close(), "close")
			x.free(st)
			x.free(b)
			x.wantClose(test.want...)
		})
	}
}

// TestFakeLeakFailsTheTest: a leak fails the test of the Fake with the position of the allocation.
func TestFakeLeakFailsTheTest(t *testing.T) {
	r := record(t, func(r *recorder) {
		f := NewFake(r, FakeConfig{Name: "leaky"})
		if _, err := f.Alloc(t.Context(), 10); err != nil {
			t.Error(err)
		}
	})
	if len(r.failures) != 1 || !strings.Contains(r.failures[0], "fake_test.go:") || !strings.Contains(r.failures[0], "leaky") {
		t.Errorf("failures %q, want one with the position of the leak and the device", r.failures)
	}
	r = record(t, func(r *recorder) { NewFake(r, FakeConfig{}) })
	if len(r.failures) != 0 {
		t.Errorf("an unused Fake fails its test: %q", r.failures)
	}
}

// TestFakeClose: Close does queued work, and all later calls fail.
func TestFakeClose(t *testing.T) {
	x := newFakeCheck(t, FakeConfig{})
	s := x.stream()
	b, data := x.filled(100)
	st := x.stage(100)
	late := x.bytes(st)
	x.fake.Hold()
	x.must(s.StageSend(st, 0, device.Whole(b)), "stage send")
	if err := x.fake.Close(); err == nil {
		t.Error("Close reports no leak")
	}
	x.same(late, data, "staging of queued work")
	if err := x.fake.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	_, alloc := x.fake.Alloc(t.Context(), 1)
	_, stage := x.fake.Stage(t.Context(), 1)
	_, stream := x.fake.NewStream()
	_, bytes := st.Bytes(t.Context())
	for what, err := range map[string]error{
		"Alloc": alloc, "Stage": stage, "NewStream": stream, "Bytes": bytes,
		"CopyIn":      x.fake.CopyIn(t.Context(), device.Whole(b), data),
		"CopyOut":     x.fake.CopyOut(t.Context(), data, device.Whole(b)),
		"StageSend":   s.StageSend(st, 0, device.Whole(b)),
		"ReceiveInto": s.ReceiveInto(st, 0, device.Whole(b)),
		"Copy":        s.Copy(device.Region{Buffer: b, Bytes: 10}, device.Region{Buffer: b, Offset: 10, Bytes: 10}),
		"Wait":        s.Wait(t.Context()),
		"Close":       s.Close(),
		"Free":        b.Free(),
		"Free staged": st.Free(),
	} {
		if !errors.Is(err, device.ErrClosed) {
			t.Errorf("%s on a closed device: %v, want ErrClosed", what, err)
		}
	}
	for _, f := range []freer{b, st} {
		if err := f.Free(); !errors.Is(err, device.ErrClosed) {
			t.Errorf("Free on a closed device: %v, want ErrClosed", err)
		}
	}
}

func TestFakeMemoryLimits(t *testing.T) {
	x := newFakeCheck(t, FakeConfig{Name: "small", Memory: 1000, StagingMemory: 500})
	x.alloc(600)
	x.stage(300)
	for what, test := range map[string]struct {
		err  func() error
		want device.MemoryError
	}{
		"alloc": {func() error { _, err := x.fake.Alloc(x.ctx, 401); return err }, device.MemoryError{Device: "small", What: "buffer", Requested: 401, Free: 400, Total: 1000}},
		"stage": {func() error { _, err := x.fake.Stage(x.ctx, 201); return err }, device.MemoryError{Device: "small", What: "staging", Requested: 201, Free: 200, Total: 500}},
	} {
		err := test.err()
		if e, ok := errors.AsType[*device.MemoryError](err); !ok || *e != test.want {
			t.Errorf("%s: got error %v, want %v", what, err, &test.want)
		}
	}
	freeAll(t, x.alloc(400), x.stage(200))
	freeAll(t, x.alloc(400), x.stage(200))
}

// TestFakeAllocWaits: Alloc and Stage wait for freed memory that is in use, until the context ends.
func TestFakeAllocWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newFakeCheck(t, FakeConfig{Memory: 1000, StagingMemory: 1000})
		s := x.stream()
		b, data := x.filled(1000)
		st := x.stage(1000)
		release := x.fake.Hold()
		x.must(s.StageSend(st, 0, device.Whole(b)), "stage send")
		freeAll(t, b, st)

		ctx, cancel := context.WithCancel(x.ctx)
		errs := make(chan error, 2)
		alloc := func(ctx context.Context) { c, err := x.fake.Alloc(ctx, 900); errs <- errors.Join(err, freeIf(c)) }
		stage := func(ctx context.Context) { c, err := x.fake.Stage(ctx, 900); errs <- errors.Join(err, freeIf(c)) }
		for _, f := range []func(context.Context){alloc, stage} {
			go f(ctx)
			synctest.Wait()
			if len(errs) > 0 {
				t.Fatalf("the allocation does not wait: %v", <-errs)
			}
			cancel()
			if err := <-errs; !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled while it waits for memory: %v", err)
			}
			ctx, cancel = context.WithCancel(x.ctx) //nolint:fatcontext // each turn cancels the context of the one before
		}
		defer cancel()
		go alloc(ctx)
		go stage(ctx)
		synctest.Wait()
		release()
		for range 2 {
			if err := <-errs; err != nil {
				t.Errorf("after the memory was released: %v", err)
			}
		}
		x.must(s.Close(), "close")
		x.wantClose()
		if got, want := x.fake.Stats(), (Stats{
			CopiesIn: 1, CopiesOut: 1, BytesIn: int64(len(data)), BytesOut: int64(len(data)), MemoryMost: 1000, StagingMemoryMost: 1000,
		}); got != want {
			t.Errorf("Stats are %+v, want %+v", got, want)
		}
	})
}

// freeIf frees f unless it is nil.
func freeIf(f freer) error {
	if f == nil {
		return nil
	}
	return f.Free()
}

func TestFakeStats(t *testing.T) {
	x := newFakeCheck(t, FakeConfig{})
	s := x.stream()
	a, data := x.filled(100)
	b, st := x.alloc(50), x.stage(30)
	x.must(s.StageSend(st, 0, device.Region{Buffer: a, Bytes: 30}), "stage send")
	x.must(s.ReceiveInto(st, 10, device.Region{Buffer: a, Bytes: 5, Rows: 4, Stride: 9}), "receive into")
	x.must(s.Copy(device.Whole(b), device.Region{Buffer: a, Bytes: 50}), "copy")
	x.wait(s)
	x.must(x.d.CopyOut(x.ctx, data, device.Whole(a)), "copy out")
	if err := s.Copy(device.Whole(b), device.Whole(a)); err == nil {
		t.Error("no error for a copy of the wrong length")
	}
	want := Stats{
		CopiesIn: 2, CopiesOut: 2, CopiesWithin: 1, BytesIn: 120, BytesOut: 130, BytesWithin: 50,
		Buffers: 2, Stagings: 1, Streams: 1, Memory: 150, MemoryMost: 150, StagingMemory: 30, StagingMemoryMost: 30,
	}
	if got := x.fake.Stats(); got != want {
		t.Errorf("Stats are\n%+v, want\n%+v", got, want)
	}
	freeAll(t, a, b, st)
	want.Buffers, want.Stagings, want.Memory, want.StagingMemory = 0, 0, 0, 0
	if got := x.fake.Stats(); got != want {
		t.Errorf("after Free, Stats are\n%+v, want\n%+v", got, want)
	}
}

// TestFakeFailCopy: the n-th copy fails and copies nothing.
func TestFakeFailCopy(t *testing.T) {
	broken := errors.New("broken")
	x := newFakeCheck(t, FakeConfig{Name: "fake:3"})
	b, data := x.filled(10)
	x.fake.FailCopy(2, broken)
	x.fake.FailCopy(3, broken)
	x.copyIn(device.Whole(b), data)
	err := x.d.CopyIn(x.ctx, device.Whole(b), make([]byte, 10))
	if !errors.Is(err, broken) || err.Error() != "device fake:3: broken" {
		t.Errorf("copy in: %v", err)
	}
	x.wantError(x.d.CopyOut(x.ctx, make([]byte, 10), device.Whole(b)), broken, "copy out")
	x.want(b, data, "buffer")

	for name, queue := range map[string]func(device.Stream, device.Staging) error{
		"StageSend of 10 bytes":   func(s device.Stream, st device.Staging) error { return s.StageSend(st, 0, device.Whole(b)) },
		"ReceiveInto of 10 bytes": func(s device.Stream, st device.Staging) error { return s.ReceiveInto(st, 0, device.Whole(b)) },
		"Copy of 5 bytes": func(s device.Stream, _ device.Staging) error {
			return s.Copy(device.Region{Buffer: b, Bytes: 5}, device.Region{Buffer: b, Offset: 5, Bytes: 5})
		},
	} {
		s := x.stream()
		x.fake.FailCopy(1, broken)
		x.must(queue(s, x.stage(10)), name)
		want := fmt.Sprintf("device fake:3: %s: broken", name)
		if err := s.Wait(x.ctx); !errors.Is(err, broken) || err.Error() != want {
			t.Errorf("Wait: %v, want %s", err, want)
		}
	}
	x.want(b, data, "buffer")
}

// TestFakeDelays: delays depend on the seed, and are below DelayMax.
func TestFakeDelays(t *testing.T) {
	took := func(seed uint64) (total time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			x := newFakeCheck(t, FakeConfig{Seed: seed, DelayMax: time.Minute})
			s, st := x.stream(), x.stage(10)
			b, _ := x.filled(10)
			for range 10 {
				began := time.Now()
				x.must(s.StageSend(st, 0, device.Whole(b)), "stage send")
				x.bytes(st)
				if d := time.Since(began); d >= time.Minute {
					t.Errorf("delay %v, want less than a minute", d)
				}
				total += time.Since(began)
			}
		})
		return total
	}
	if a, b, c := took(1), took(1), took(2); a != b || a == c || a == 0 {
		t.Errorf("delays %v and %v with seed 1, %v with seed 2; want the first two equal and the third different", a, b, c)
	}
}
