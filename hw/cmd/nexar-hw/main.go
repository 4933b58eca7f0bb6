// Command nexar-hw is the command nexar with the hardware of module hw: RDMA, GPUs and NCCL.
//
//	nexar-hw doctor                 also lists RDMA devices, GPUs and NCCL, and says how to add missing parts, and
//	                                which GPUs and RDMA devices access the memory of GPUs
//	nexar-hw bench --transport rdma measures over RDMA
//	nexar-hw bench --device cuda    measures vectors on GPUs
//
// All other commands are those of nexar. The variables NEXARHW_RDMA_DEVICE, NEXARHW_RDMA_PORT and NEXARHW_RDMA_GID choose the RDMA
// device for all of them.
package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/device/nccl"
	"github.com/nexar-go/nexar/internal/command"
)

func main() { command.Main(hardware("", "")) }

// hardware returns the hardware of module hw. Driver and collectives are the file names of the CUDA driver and of NCCL, or "" for
// the default ones.
func hardware(driver, collectives string) command.Hardware {
	h := command.Hardware{
		Command: "nexar-hw",
		Devices: map[string]func(int) (device.Stream, func() error, error){
			"cuda": func(localRank int) (device.Stream, func() error, error) { return openGPU(localRank, driver) },
		},
		Diagnose: []command.Diagnosis{
			{Kind: "gpus", Examine: func(w io.Writer) bool { return diagnoseGPUs(w, driver, collectives) }},
			{Kind: "gpu memory", Examine: func(w io.Writer) bool { return diagnoseAccess(w, driver) }},
		},
	}
	addRDMA(&h)
	return h
}

// openGPU returns a stream of a GPU for a rank of this host. If there are more ranks than GPUs, they share them.
func openGPU(localRank int, driver string) (stream device.Stream, end func() error, err error) {
	gpus, err := cuda.List(driver)
	switch {
	case err != nil:
		return nil, nil, err
	case len(gpus) == 0:
		return nil, nil, errors.New("cuda: no GPU: see CUDA_VISIBLE_DEVICES")
	}
	gpu, err := cuda.Open(localRank%len(gpus), cuda.Config{Library: driver})
	if err != nil {
		return nil, nil, err
	}
	if stream, err = gpu.NewStream(); err != nil {
		return nil, nil, errors.Join(err, gpu.Close())
	}
	return stream, func() error { return errors.Join(stream.Close(), gpu.Close()) }, nil
}

// diagnoseGPUs writes the GPUs and the version of NCCL. It reports whether there is a GPU.
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
