package main

import (
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/internal/cudafake"
	"github.com/nexar-go/nexar/internal/require"
)

// train returns the digest of the weights of a short training with two ranks.
func train(t *testing.T, args ...string) string {
	t.Helper()
	o, err := parse(append(args, "--epochs", "1", "--local", "2"))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := o.run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	digest := regexp.MustCompile(`weights ([0-9a-f]{16})`).FindStringSubmatch(out.String())
	if digest == nil {
		t.Fatalf("no weights in\n%s", out.String())
	}
	return digest[1]
}

// same: the weights have the same bits as without a device, since a sum of two elements has no order.
func same(t *testing.T, args ...string) {
	t.Helper()
	if got, want := train(t, append(args, "--device", "cuda")...), train(t); got != want {
		t.Errorf("weights %s with gradients on GPUs, and %s without", got, want)
	}
}

func TestFake(t *testing.T) {
	same(t, "--driver", cudafake.New(t).Path, "--nccl", cudafake.NCCL(t))
	same(t, "--driver", cudafake.New(t).Path, "--nccl", "libnccl-none.so.2")
}

// TestNoGPU: the error is printed once, not by each rank, and has hints.
func TestNoGPU(t *testing.T) {
	fake := cudafake.New(t)
	if _, err := cuda.List(fake.Path); err != nil { // A driver that has not started reports an error itself.
		t.Fatal(err)
	}
	fake.Configure(0, 256<<20)
	t.Cleanup(func() { fake.Configure(2, 256<<20) })
	for driver, reason := range map[string]string{fake.Path: "no GPU", "libcuda-none.so.1": "the CUDA driver is not installed"} {
		o, err := parse([]string{"--device", "cuda", "--local", "2", "--driver", driver})
		if err != nil {
			t.Fatal(err)
		}
		err = o.run(t.Context(), io.Discard)
		if err == nil {
			t.Fatalf("%s: no error", driver)
		}
		for _, want := range []string{reason, "--device host", "nexar-hw doctor"} {
			if strings.Count(err.Error(), want) != 1 {
				t.Errorf("%s: %q is not in the error once: %v", driver, want, err)
			}
		}
	}
}

func TestMachine(t *testing.T) {
	gpus, err := cuda.List("")
	require.Have(t, "cuda", err == nil && len(gpus) > 0, "there is no GPU")
	same(t)
}

func TestUsage(t *testing.T) {
	for _, args := range [][]string{{"--device", "tpu"}, {"--epochs", "0"}, {"--local", "-1"}} {
		if _, err := parse(args); err == nil || !strings.HasPrefix(err.Error(), args[0]+" "+args[1]+": must") {
			t.Errorf("%v: %v, want an error that names the flag", args, err)
		}
	}
}
