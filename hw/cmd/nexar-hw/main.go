//go:build linux

// Command nexar-hw examines the hardware of this host that nexar can use.
//
//	nexar-hw doctor
//
// It lists the RDMA devices, the GPUs of NVIDIA and the version of NCCL, which GPUs access the memory of each other, and how
// the RDMA device accesses that of GPUs, and says how to add missing parts. It exits with status 1 if neither an RDMA device nor a GPU can be used.
package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/device/nccl"
	"github.com/nexar-go/nexar/hw/transport/rdma"
)

func main() {
	if len(os.Args) != 2 || os.Args[1] != "doctor" {
		fmt.Fprintln(os.Stderr, "usage: nexar-hw doctor")
		os.Exit(2)
	}
	usable := rdma.Diagnose(os.Stdout, rdma.Config{})
	if diagnoseGPUs(os.Stdout, "", "") {
		usable = true
	}
	diagnoseDirect(os.Stdout, "")
	if !usable {
		os.Exit(1)
	}
}

// diagnoseGPUs writes the GPUs and the version of NCCL. It reports whether there is a GPU. Driver and collectives
// are file names of libraries, or "" for the default ones.
func diagnoseGPUs(w io.Writer, driver, collectives string) bool {
	gpus, err := cuda.List(driver)
	if err != nil {
		fmt.Fprintln(w, err)
	} else if len(gpus) == 0 {
		fmt.Fprintln(w, "cuda: no GPU: see CUDA_VISIBLE_DEVICES")
	}
	for i, g := range gpus {
		dmaBuf := "DMA-BUF"
		if !g.DMABuf {
			dmaBuf = "no DMA-BUF"
		}
		fmt.Fprintf(w, "cuda:%d: %s, %d MiB, compute capability %d.%d, %s\n", i, g.Name, g.Memory>>20, g.Capability[0], g.Capability[1], dmaBuf)
	}
	if version, err := nccl.Version(collectives); err != nil {
		fmt.Fprintln(w, err)
	} else {
		fmt.Fprintf(w, "nccl: version %s\n", version)
	}
	return len(gpus) > 0
}

// diagnoseDirect writes how the RDMA device accesses the memory of each GPU, and which GPUs access the memory of each other.
// Driver is the file name of the library, or "" for the default one.
func diagnoseDirect(w io.Writer, driver string) {
	ctx := context.Background()
	list, _ := cuda.List(driver)
	gpus := make([]*cuda.Device, len(list))
	buffers := make([]device.Buffer, len(list))
	for i := range list {
		const probe = 2 << 20
		gpu, err := cuda.Open(i, cuda.Config{Library: driver})
		if err != nil {
			fmt.Fprintln(w, err)
			return
		}
		defer gpu.Close()
		gpus[i] = gpu
		if buffers[i], err = gpu.Alloc(ctx, probe); err != nil {
			fmt.Fprintln(w, err)
			return
		}
		address, err := cuda.Pointer(buffers[i])
		if err != nil {
			fmt.Fprintln(w, err)
			return
		}
		rdma.DiagnoseDevice(w, rdma.Config{}, gpu.Name(), rdma.DeviceMemory{
			Address: address, Bytes: probe, DMABuf: func() (int, int64, error) { return cuda.DMABuf(buffers[i]) },
		})
	}
	for i, gpu := range gpus {
		for j, b := range buffers {
			if i == j {
				continue
			}
			theirs, err := gpu.Access(b)
			if err != nil {
				fmt.Fprintf(w, "%s does not access the memory of %s: %v\n", gpu.Name(), gpus[j].Name(), err)
				continue
			}
			fmt.Fprintf(w, "%s accesses the memory of %s\n", gpu.Name(), gpus[j].Name())
			_ = theirs.Free()
		}
	}
}
