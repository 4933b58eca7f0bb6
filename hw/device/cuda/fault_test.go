package cuda_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/internal/cudafake"
)

// must fails a test at once.
func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// filled returns a buffer with data.
func filled(tb testing.TB, d *cuda.Device, data []byte) device.Buffer {
	tb.Helper()
	b, err := d.Alloc(tb.Context(), len(data))
	must(tb, err)
	must(tb, d.CopyIn(tb.Context(), device.Whole(b), data))
	return b
}

func contents(tb testing.TB, d *cuda.Device, b device.Buffer) []byte {
	tb.Helper()
	out := make([]byte, b.Len())
	must(tb, d.CopyOut(tb.Context(), out, device.Whole(b)))
	return out
}

func pattern(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i*31 + i>>8)
	}
	return p
}

// TestNothingRemains: all that a device has got from the driver is returned, and all its copies are of
// locked memory.
func TestNothingRemains(t *testing.T) {
	fake := cudafake.New(t)
	before := fake.Live()
	d, err := cuda.Open(0, cuda.Config{Library: fake.Path})
	must(t, err)
	s, err := d.NewStream()
	must(t, err)
	data := pattern(10 << 20) // several chunks
	a, b := filled(t, d, data), filled(t, d, make([]byte, len(data)))
	must(t, s.(device.Reducer).Reduce(device.Whole(b), device.Whole(a), device.Uint8, device.BitXor))
	must(t, s.Wait(t.Context()))
	if !bytes.Equal(contents(t, d, b), data) {
		t.Error("contents after a reduction with 0 differ")
	}
	st, err := d.Stage(t.Context(), 1000)
	must(t, err)
	must(t, st.Free())
	must(t, a.Free())
	must(t, s.Close())
	must(t, d.Close()) // b is in use
	if n := fake.Live(); n != before {
		t.Errorf("%d things of the driver remain", n-before)
	}
	if n := fake.Pageable(); n != 0 {
		t.Errorf("%d copies used memory that is not locked", n)
	}
	if err := d.Close(); !errors.Is(err, device.ErrClosed) {
		t.Errorf("second Close: %v, want ErrClosed", err)
	}
	if _, err := d.Alloc(t.Context(), 10); !errors.Is(err, device.ErrClosed) {
		t.Errorf("Alloc of a closed device: %v, want ErrClosed", err)
	}
}

// TestRows: copies of rows longer than a chunk, and of many rows.
func TestRows(t *testing.T) {
	drivers(t, func(t *testing.T, dr driver) {
		d := dr.open(t, 0, cuda.Config{})
		const size = 12 << 20
		data := pattern(size)
		b := filled(t, d, data)
		for _, r := range []device.Region{
			{Buffer: b, Offset: 7, Bytes: 5 << 20, Rows: 2, Stride: 6 << 20},
			{Buffer: b, Offset: 1, Bytes: 3000, Rows: 3000, Stride: 4000},
			{Buffer: b, Bytes: 1, Rows: 5000, Stride: 2},
		} {
			var want []byte
			for row := range r.RowCount() {
				want = append(want, data[r.RowAt(row):][:r.Bytes]...)
			}
			got := make([]byte, r.Total())
			must(t, d.CopyOut(t.Context(), got, r))
			if !bytes.Equal(got, want) {
				t.Errorf("%d rows of %d bytes: CopyOut is wrong", r.Rows, r.Bytes)
			}
			must(t, d.CopyIn(t.Context(), r, want))
		}
		if !bytes.Equal(contents(t, d, b), data) {
			t.Error("CopyIn of rows is wrong")
		}
	})
}

// TestKernelFault: a fault of a kernel ends all streams of the GPU with an error that names the call and
// the message of the driver, and no other GPU.
func TestKernelFault(t *testing.T) { drivers(t, testKernelFault) }

func testKernelFault(t *testing.T, dr driver) {
	if os.Getenv(childVariable) == "" {
		inChild(t) // the driver of the process remains broken
		return
	}
	d := dr.open(t, 0, cuda.Config{})
	busy, err := d.NewStream()
	must(t, err)
	idle, err := d.NewStream()
	must(t, err)
	a, b := filled(t, d, pattern(64)), filled(t, d, pattern(64))
	st, err := d.Stage(t.Context(), 64)
	must(t, err)
	if dr.gpus(t) > 1 {
		other := dr.open(t, 1, cuda.Config{})
		kept := filled(t, other, pattern(64))
		defer func() {
			if !bytes.Equal(contents(t, other, kept), pattern(64)) {
				t.Error("the other GPU is affected")
			}
		}()
	}
	if dr.fake != nil {
		dr.fake.Fault(0)
	} else {
		b, err = d.Unmapped(64 << 20)
		must(t, err)
	}
	// The call that queues the work may know of the fault already.
	early := busy.(device.Reducer).Reduce(device.Whole(a), device.Region{Buffer: b, Bytes: 64}, device.Float32, device.Sum)
	queued := busy.StageSend(st, 0, device.Whole(a)) == nil
	err = busy.Wait(t.Context())
	if early != nil && early != err {
		t.Errorf("Reduce: %v, want nil or the error of Wait", early)
	}
	e, ok := errors.AsType[*device.StreamError](err)
	if !ok || e.Work != "Reduce of 64 bytes (sum of float32)" {
		t.Errorf("Wait: %v, want a StreamError of Reduce", err)
	}
	for _, part := range []string{"device cuda:0", "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error %q does not contain %q", err, part)
		}
	}
	if again := busy.Wait(t.Context()); again != err {
		t.Errorf("second Wait: %v, want the same error", again)
	}
	if _, after := st.Bytes(t.Context()); queued && after != err {
		t.Errorf("Bytes of work behind the fault: %v, want the same error", after)
	}
	if err := idle.Wait(t.Context()); err == nil {
		t.Error("another stream of the GPU works")
	}
	if _, err := d.Alloc(t.Context(), 10); err == nil || !strings.Contains(err.Error(), "ILLEGAL_ADDRESS") {
		t.Errorf("Alloc: %v", err)
	}
}

const childVariable = "CUDATEST_CHILD"

// inChild runs a test in another process.
func inChild(t *testing.T, env ...string) string {
	t.Helper()
	fake := cudafake.New(t)
	cmd := exec.Command(os.Args[0], "-test.run=^"+strings.ReplaceAll(t.Name(), "/", "$/^")+"$", "-test.v")
	cmd.Env = append(append(os.Environ(), childVariable+"=1", cudafake.PathVariable+"="+fake.Path), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("child: %v\n%s", err, out)
	}
	return string(out)
}

// TestCallErrors: an error of a call ends its stream only, and names the call.
func TestCallErrors(t *testing.T) {
	d, fake := open(t, 0, cuda.Config{})
	s, err := d.NewStream()
	must(t, err)
	other, err := d.NewStream()
	must(t, err)
	a, b := filled(t, d, pattern(64)), filled(t, d, pattern(64))
	fake.Fail("cuLaunchKernel", 1, 1)
	must(t, s.(device.Reducer).Reduce(device.Whole(a), device.Whole(b), device.Int32, device.Max))
	err = s.Wait(t.Context())
	e, ok := errors.AsType[*cuda.Error](err)
	if !ok || e.Call != "cuLaunchKernel" || e.Name != "CUDA_ERROR_INVALID_VALUE" || !strings.Contains(err.Error(), "device cuda:0") {
		t.Errorf("Reduce: %v, want an error of cuLaunchKernel", err)
	}
	if again := s.(device.Reducer).Reduce(device.Whole(a), device.Whole(b), device.Int32, device.Max); again != err {
		t.Errorf("next Reduce: %v, want the same error", again)
	}
	must(t, other.(device.Reducer).Reduce(device.Whole(a), device.Whole(b), device.Int32, device.Max))
	must(t, other.Wait(t.Context()))

	fake.Fail("cuStreamCreate", 1, 2)
	if _, err := d.NewStream(); err == nil || !strings.Contains(err.Error(), "device cuda:0: cuStreamCreate: CUDA_ERROR_OUT_OF_MEMORY (2): out of memory") {
		t.Errorf("NewStream: %v", err)
	}
	// CopyIn and CopyOut have another stream after a failure.
	fake.Fail("cuMemcpyDtoHAsync_v2", 1, 1)
	if err := d.CopyOut(t.Context(), make([]byte, 64), device.Whole(a)); err == nil {
		t.Error("a failed copy succeeds")
	}
	if !bytes.Equal(contents(t, d, a), pattern(64)) {
		t.Error("contents after a failed copy")
	}
}

// TestMemoryLimits: limits of buffers and of staging memory, and freed memory that is allocated again.
func TestMemoryLimits(t *testing.T) {
	d, fake := open(t, 0, cuda.Config{Memory: 1 << 20, StagingMemory: 8 << 20})
	ctx := t.Context()
	b, err := d.Alloc(ctx, 1<<20)
	must(t, err)
	var short *device.MemoryError
	if _, err := d.Alloc(ctx, 1); !errors.As(err, &short) || short.Free != 0 || short.Total != 1<<20 {
		t.Errorf("Alloc above the limit: %v", err)
	}
	must(t, b.Free())
	calls := fake.Calls("cuMemAlloc_v2")
	b, err = d.Alloc(ctx, 1<<20-1)
	must(t, err)
	if n := fake.Calls("cuMemAlloc_v2") - calls; n != 0 {
		t.Errorf("%d calls of cuMemAlloc for memory of a freed buffer", n)
	}
	must(t, b.Free())
	// Cached memory of another size makes room.
	for range 3 {
		c, err := d.Alloc(ctx, 600<<10)
		must(t, err)
		must(t, c.Free())
	}
	if _, err := d.Stage(ctx, 9<<20); !errors.As(err, &short) || short.What != "staging" {
		t.Errorf("Stage above the limit: %v", err)
	}

	// Memory of queued work is waited for.
	s, err := d.NewStream()
	must(t, err)
	release := d.Hold()
	x, err := d.Alloc(ctx, 512<<10)
	must(t, err)
	must(t, s.Copy(device.Region{Buffer: x, Bytes: 100}, device.Region{Buffer: x, Offset: 1000, Bytes: 100}))
	must(t, x.Free())
	cause := errors.New("enough")
	ended, cancel := context.WithCancelCause(ctx)
	got := make(chan error, 1)
	go func() { _, err := d.Alloc(ended, 1<<20); got <- err }()
	cancel(cause)
	if err := <-got; !errors.Is(err, cause) {
		t.Errorf("Alloc that waits: %v, want %v", err, cause)
	}
	go func() { _, err := d.Alloc(ctx, 1<<20); got <- err }()
	release()
	if err := <-got; err != nil {
		t.Errorf("Alloc after the work is done: %v", err)
	}
}

// TestDriverOutOfMemory: the driver has less memory than the limit.
func TestDriverOutOfMemory(t *testing.T) {
	d, fake := open(t, 0, cuda.Config{})
	fake.Fail("cuMemAlloc_v2", 1, 2)
	var short *device.MemoryError
	if _, err := d.Alloc(t.Context(), 5000); !errors.As(err, &short) || short.Requested != 5000 {
		t.Errorf("Alloc: %v, want a MemoryError", err)
	}
	b, err := d.Alloc(t.Context(), 5000)
	must(t, err)
	must(t, b.Free())
	// The freed buffer is returned to the driver, and the second attempt succeeds.
	fake.Fail("cuMemAlloc_v2", 1, 2)
	if _, err := d.Alloc(t.Context(), 50000); err != nil {
		t.Errorf("Alloc with freed memory: %v", err)
	}
}

// TestForeignMemory: buffers and streams of another library.
func TestForeignMemory(t *testing.T) {
	drivers(t, func(t *testing.T, dr driver) {
		d := dr.open(t, 0, cuda.Config{})
		b := filled(t, d, pattern(256))
		addr, err := cuda.Pointer(b)
		must(t, err)
		part, err := d.Of(addr+64, 128)
		must(t, err)
		if !bytes.Equal(contents(t, d, part), pattern(256)[64:192]) {
			t.Error("the buffer of an address has other contents")
		}
		if _, err := d.Of(addr, 1<<30); err == nil || !strings.Contains(err.Error(), "are not inside an allocation") {
			t.Errorf("Of more than the allocation: %v", err)
		}
		own, err := d.NewStream()
		must(t, err)
		handle, err := cuda.Handle(own)
		must(t, err)
		s, err := d.StreamOf(handle)
		must(t, err)
		if err := s.Copy(device.Region{Buffer: b, Offset: 60, Bytes: 10}, device.Region{Buffer: part, Bytes: 10}); !errors.Is(err, device.ErrOverlap) {
			t.Errorf("Copy within the same memory: %v, want ErrOverlap", err)
		}
		release := d.Hold()
		must(t, own.Copy(device.Region{Buffer: b, Bytes: 10}, device.Region{Buffer: b, Offset: 100, Bytes: 10}))
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Wait(ended); !errors.Is(err, context.Canceled) {
			t.Errorf("Wait does not wait for the work of the owner: %v", err)
		}
		release()
		must(t, s.Wait(t.Context()))
		if !bytes.Equal(contents(t, d, b)[:10], pattern(256)[100:110]) {
			t.Error("the work of the owner is not done")
		}
		must(t, s.Close())
		must(t, own.Wait(t.Context()))
		if _, err := d.StreamOf(0); err == nil {
			t.Error("the default stream is accepted")
		}
	})
}

// TestCopyPeer: copies between GPUs, of rows too.
func TestCopyPeer(t *testing.T) {
	drivers(t, func(t *testing.T, dr driver) {
		d := dr.open(t, 0, cuda.Config{})
		other := dr.open(t, dr.gpus(t)-1, cuda.Config{})
		src := filled(t, other, pattern(1000))
		dst := filled(t, d, make([]byte, 1000))
		s, err := d.NewStream()
		must(t, err)
		must(t, cuda.CopyPeer(s, device.Whole(dst), device.Whole(src)))
		must(t, src.Free())
		must(t, s.Wait(t.Context()))
		if !bytes.Equal(contents(t, d, dst), pattern(1000)) {
			t.Error("a copy of another GPU is wrong")
		}
		if err := cuda.CopyPeer(s, device.Whole(dst), device.Whole(src)); !errors.Is(err, device.ErrFreed) {
			t.Errorf("copy of a freed buffer: %v", err)
		}
		if err := s.Copy(device.Whole(dst), device.Whole(filled(t, other, pattern(1000)))); err == nil {
			t.Error("Copy accepts a buffer of another GPU")
		}
	})
}

// TestDivide: the average of integers and of halves.
func TestDivide(t *testing.T) {
	drivers(t, func(t *testing.T, dr driver) {
		d := dr.open(t, 0, cuda.Config{})
		s, err := d.NewStream()
		must(t, err)
		b := filled(t, d, []byte{9, 0, 0, 0, 0xf7, 0xff, 0xff, 0xff, 8, 0, 0, 0})
		must(t, cuda.Divide(s, device.Whole(b), device.Int32, 2))
		must(t, s.Wait(t.Context()))
		if got, want := contents(t, d, b), []byte{4, 0, 0, 0, 0xfc, 0xff, 0xff, 0xff, 4, 0, 0, 0}; !bytes.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
		if err := cuda.Divide(s, device.Whole(b), device.Float16, 5000); !errors.Is(err, device.ErrInvalidOp) {
			t.Errorf("division of float16 by 5000: %v", err)
		}
	})
}

// TestShare: two processes access the same memory of a GPU.
func TestShare(t *testing.T) { drivers(t, testShare) }

func testShare(t *testing.T, dr driver) {
	if os.Getenv(childVariable) != "" {
		d := dr.open(t, 0, cuda.Config{})
		var shared cuda.Shared
		must(t, json.Unmarshal([]byte(os.Getenv("SHARED")), &shared))
		b, err := d.Import(shared)
		must(t, err)
		data := contents(t, d, b)
		for i := range data {
			data[i] ^= 0xff
		}
		must(t, d.CopyIn(t.Context(), device.Whole(b), data))
		must(t, b.Free())
		return
	}
	d := dr.open(t, 0, cuda.Config{})
	b := filled(t, d, pattern(500))
	shared, err := cuda.Share(b)
	must(t, err)
	if _, err := d.Import(shared); err == nil || !strings.Contains(err.Error(), "cuIpcOpenMemHandle_v2") {
		t.Errorf("Import in the same process: %v, want the error of the driver", err)
	}
	text, err := json.Marshal(shared)
	must(t, err)
	inChild(t, "SHARED="+string(text))
	want := pattern(500)
	for i := range want {
		want[i] ^= 0xff
	}
	if !bytes.Equal(contents(t, d, b), want) {
		t.Error("the other process has not changed the memory")
	}
}

// TestOpenErrors: no library, no GPU, no such GPU, a library without a function.
func TestOpenErrors(t *testing.T) {
	fake := cudafake.New(t)
	if os.Getenv(childVariable) != "" {
		_, err := cuda.Open(0, cuda.Config{Library: fake.Path})
		if err == nil || !strings.Contains(err.Error(), "CUDA_ERROR_NO_DEVICE (100): no CUDA-capable device is detected") {
			t.Errorf("without visible GPUs: %v", err)
		}
		return
	}
	inChild(t, "CUDA_VISIBLE_DEVICES=")
	old, err := cudafake.Build("old", []byte("int cuInit(unsigned f) { return f; }"))
	must(t, err)
	for _, test := range []struct {
		number int
		path   string
		want   string
	}{
		{0, "libcuda-none.so.1", "device cuda:0: the CUDA driver is not installed: cannot open libcuda-none.so.1"},
		{7, fake.Path, "device cuda:7: no such GPU: this process may use 2, numbered from 0"},
		{-1, fake.Path, "no such GPU"},
		{0, old, "the CUDA driver is too old"},
	} {
		if _, err := cuda.Open(test.number, cuda.Config{Library: test.path}); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("GPU %d of %s: %v, want %q", test.number, test.path, err, test.want)
		}
	}
	list, err := cuda.List(fake.Path)
	if err != nil || len(list) != 2 || list[1].Name != "Fake device" || list[1].UUID[15] != 1 || list[0].Memory != 256<<20 || list[0].Capability[0] != 7 {
		t.Errorf("List: %+v, %v", list, err)
	}
	// A broken kernel: the error has the message of the compiler.
	d, _ := open(t, 0, cuda.Config{})
	s, err := d.NewStream()
	must(t, err)
	a, b := filled(t, d, pattern(8)), filled(t, d, pattern(8))
	fake.Fail("cuModuleLoadDataEx", 1, 218)
	must(t, s.(device.Reducer).Reduce(device.Whole(a), device.Whole(b), device.Int8, device.Sum))
	err = s.Wait(t.Context())
	if err == nil || !strings.Contains(err.Error(), "cannot compile the kernels of int8: cuModuleLoadDataEx: CUDA_ERROR_INVALID_PTX") {
		t.Errorf("Reduce without kernels: %v", err)
	}
}
