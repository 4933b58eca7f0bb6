//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/nexar-go/nexar/hw/internal/cudafake"
)

// TestDiagnoseGPUs: doctor lists the GPUs and the version of NCCL, or the missing libraries.
func TestDiagnoseGPUs(t *testing.T) {
	fake := cudafake.New(t)
	fake.Configure(2, 64<<20)
	for _, test := range []struct {
		driver, collectives string
		usable              bool
		want                []string
	}{
		{fake.Path, cudafake.NCCL(t), true, []string{"cuda:1: Fake device, 64 MiB, compute capability 7.", "nccl: version 2.23.4\n"}},
		{"libcuda-none.so.1", "libnccl-none.so.2", false, []string{
			"cuda: the CUDA driver is not installed: cannot open libcuda-none.so.1", "nccl: NCCL is not installed: cannot open libnccl-none.so.2",
		}},
	} {
		var out strings.Builder
		if usable := diagnoseGPUs(&out, test.driver, test.collectives); usable != test.usable {
			t.Errorf("%s: usable: %v, want %v", test.driver, usable, test.usable)
		}
		for _, text := range test.want {
			if !strings.Contains(out.String(), text) {
				t.Errorf("doctor writes, without %q:\n%s", text, out.String())
			}
		}
	}
}

// TestDiagnoseAccess: doctor writes which GPUs access the memory of each other.
func TestDiagnoseAccess(t *testing.T) {
	fake := cudafake.New(t)
	fake.Configure(2, 64<<20)
	var out strings.Builder
	diagnoseAccess(&out, fake.Path)
	for _, want := range []string{"vectors for other hosts are copied through memory of the host: device cuda:0: the GPU does not support GPUDirect RDMA\n", "cuda:0 accesses the memory of cuda:1\n", "cuda:1 accesses the memory of cuda:0\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("doctor writes, without %q:\n%s", want, out.String())
		}
	}
	fake.Fail("cuDeviceCanAccessPeer", 1, 999)
	out.Reset()
	diagnoseAccess(&out, fake.Path)
	if want := "cuda:0 does not access the memory of cuda:1: device cuda:0: cuDeviceCanAccessPeer: "; !strings.Contains(out.String(), want) {
		t.Errorf("doctor writes, without %q:\n%s", want, out.String())
	}
}
