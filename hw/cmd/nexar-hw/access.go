package main

import (
	"context"
	"fmt"
	"io"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/device/cuda"
)

// diagnoseAccess writes how the RDMA device accesses the memory of each GPU, and which GPUs access the memory of each
// other. It reports whether there is a GPU.
func diagnoseAccess(w io.Writer, driver string) bool {
	const probe = 2 << 20
	list, err := cuda.List(driver)
	if err != nil || len(list) == 0 {
		fmt.Fprintln(w, "no GPU")
		return false
	}
	gpus, buffers := make([]*cuda.Device, len(list)), make([]device.Buffer, len(list))
	for i := range list {
		gpu, err := cuda.Open(i, cuda.Config{Library: driver})
		if err != nil {
			fmt.Fprintln(w, err)
			return false
		}
		defer gpu.Close()
		gpus[i] = gpu
		if buffers[i], err = gpu.Alloc(context.Background(), probe); err != nil {
			fmt.Fprintln(w, err)
			return false
		}
		diagnoseRDMA(w, buffers[i])
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
	if len(gpus) == 1 {
		fmt.Fprintln(w, "one GPU: its ranks access the memory of each other")
	}
	return true
}
