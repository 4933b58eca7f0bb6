package nccl

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/internal/cudafake"
)

// deeper calls f with n more frames on the stack.
//
//go:noinline
func deeper(n int, f func()) byte {
	var frame [64]byte
	frame[n%64] = byte(n)
	if n == 0 {
		f()
	} else {
		frame[0] = deeper(n-1, f)
	}
	return frame[n%64]
}

// onGPU calls a function for each library of the fake, on the thread of a GPU.
func onGPU(t *testing.T, test func(t *testing.T, lib *library), libraries map[string]string) {
	for name, path := range libraries {
		t.Run(name, func(t *testing.T) {
			gpu, err := cuda.Open(0, cuda.Config{Library: cudafake.New(t).Path})
			if err != nil {
				t.Fatal(err)
			}
			defer gpu.Close()
			lib, err := open(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := gpu.Do(t.Context(), "test", func() error { test(t, lib); return nil }); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestCreateAtAnyDepth: Go moves the stack of a goroutine when it grows, so the memory that NCCL writes is not on it. At
// some of these depths the call itself makes the stack grow.
func TestCreateAtAnyDepth(t *testing.T) {
	onGPU(t, func(t *testing.T, lib *library) {
		id, err := lib.newID()
		if err != nil {
			t.Fatal(err)
		}
		for depth := range 150 {
			var c *creation
			deeper(depth, func() { c, err = lib.create(1, 0, id) })
			if err != nil {
				t.Errorf("depth %d: %v", depth, err)
				continue
			}
			for busy := true; busy && err == nil; {
				busy, err = lib.asyncError(c.comm)
			}
			if err != nil {
				t.Errorf("depth %d: %v", depth, err)
			}
			if err := lib.call("ncclCommAbort", c.comm, c.comm); err != nil {
				t.Errorf("depth %d: %v", depth, err)
			}
			if id, err = lib.newID(); err != nil {
				t.Fatal(err)
			}
		}
	}, map[string]string{"by pointer": cudafake.NCCL(t), "by value": cudafake.OldNCCL(t)})
}

// TestCreateWithoutCommunicator: a library that reports success without a communicator is an error.
func TestCreateWithoutCommunicator(t *testing.T) {
	onGPU(t, func(t *testing.T, lib *library) {
		id, err := lib.newID()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := lib.create(1, 0, id); err == nil || !strings.Contains(err.Error(), "reported success without a communicator") {
			t.Errorf("error %v, want that there is no communicator", err)
		}
	}, map[string]string{"no communicator": cudafake.NCCLWith(t, "-DNO_COMM")})
}

// TestCreateWritesLater: NCCL writes to the memory of a creation when this ends, perhaps long after the call. Until
// then nothing else is in this memory.
func TestCreateWritesLater(t *testing.T) {
	driver, library := cudafake.New(t).Path, cudafake.NCCL(t)
	comms, err := nexar.Local(t.Context(), 2, nexar.Config{})
	if err != nil {
		t.Fatal(err)
	}
	groups := make([]*Group, 2)
	for i, c := range comms {
		gpu, err := cuda.Open(i, cuda.Config{Library: driver})
		if err != nil {
			t.Fatal(err)
		}
		defer gpu.Close()
		g := &Group{
			comm: c, local: c, cross: c, gpu: gpu, hosts: [][]int{{0, 1}}, index: i, inOrder: true, limited: true,
			cfg: Config{Timeout: time.Minute},
		}
		g.inside = byNCCL{g}
		if g.lib, err = open(library); err != nil {
			t.Fatal(err)
		}
		groups[i] = g
	}
	// The call of rank 1 waits for the end of other work of its GPU.
	begin := make(chan struct{})
	busy := make(chan error, 1)
	go func() {
		busy <- groups[1].gpu.Do(t.Context(), "other work", func() error { <-begin; return nil })
	}()
	ends := make(chan error, 2)
	for _, g := range groups {
		go func() { ends <- g.connect(t.Context()) }()
	}
	created := func() bool {
		groups[0].mu.Lock()
		defer groups[0].mu.Unlock()
		return groups[0].nccl != 0
	}
	for !created() {
		time.Sleep(time.Millisecond)
	}
	runtime.GC()
	const count = 1 << 17
	words := make([]*uintptr, count)
	for i := range words {
		words[i] = new(uintptr)
	}
	close(begin)
	for range 2 {
		if err := <-ends; err != nil {
			t.Error(err)
		}
	}
	if err := <-busy; err != nil {
		t.Error(err)
	}
	for _, w := range words {
		if *w != 0 {
			t.Fatalf("a word of other memory has changed to %#x", *w)
		}
	}
	closed := make(chan error, 2)
	for _, g := range groups {
		go func() { closed <- g.Close() }()
	}
	for range 2 {
		if err := <-closed; err != nil {
			t.Error(err)
		}
	}
}
