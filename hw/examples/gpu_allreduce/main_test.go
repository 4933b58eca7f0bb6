package main

import (
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/internal/cudafake"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/internal/testlog"
)

// check runs the program with three ranks, and looks for a mean and a way in each line.
func check(t *testing.T, by string, args ...string) {
	t.Helper()
	var out testlog.Buffer
	if err := run(t.Context(), append(args, "--local", "3", "--elements", "10007"), &out); err != nil {
		t.Fatal(err)
	}
	for rank := range 3 {
		if prefix := fmt.Sprintf("rank %d of 3 on ", rank); !strings.Contains(out.String(), prefix) {
			t.Errorf("no line %q in\n%s", prefix, out.String())
		}
	}
	if want := "the mean gradient is 1, by " + by; strings.Count(out.String(), want) != 3 {
		t.Errorf("%q is not in each line of\n%s", want, out.String())
	}
}

func TestFake(t *testing.T) {
	fake := cudafake.New(t)
	fake.Configure(3, 256<<20)
	check(t, "nccl", "--driver", fake.Path, "--nccl", cudafake.NCCL(t))
	check(t, "peer (not by NCCL: rank 0 has no GPU or no NCCL", "--driver", fake.Path, "--nccl", "libnccl-none.so.2")
}

// TestNoGPU: the error is printed once, not by each rank, and has a hint.
func TestNoGPU(t *testing.T) {
	fake := cudafake.New(t)
	if _, err := cuda.List(fake.Path); err != nil { // A driver that has not started reports an error itself.
		t.Fatal(err)
	}
	fake.Configure(0, 256<<20)
	t.Cleanup(func() { fake.Configure(3, 256<<20) })
	for driver, reason := range map[string]string{fake.Path: "no GPU", "libcuda-none.so.1": "the CUDA driver is not installed"} {
		err := run(t.Context(), []string{"--local", "2", "--driver", driver}, io.Discard)
		if err == nil {
			t.Fatalf("%s: no error", driver)
		}
		for _, want := range []string{reason, "nexar-hw doctor"} {
			if strings.Count(err.Error(), want) != 1 {
				t.Errorf("%s: %q is not in the error once: %v", driver, want, err)
			}
		}
	}
}

// TestMachine: three ranks on the GPUs of this host, which may be one.
func TestMachine(t *testing.T) {
	gpus, err := cuda.List("")
	require.Have(t, "cuda", err == nil && len(gpus) > 0, "there is no GPU")
	check(t, "peer", "--nccl", "libnccl-none.so.2")
}
