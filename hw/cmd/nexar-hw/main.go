//go:build linux

// Command nexar-hw examines the hardware of this host that nexar can use.
//
//	nexar-hw doctor
//	nexar-hw bench [flags]
//
// With bench it measures and verifies all-reduces over RDMA, on ranks of this process or of several hosts; -h lists the flags. With
// doctor it lists the RDMA devices, the GPUs of NVIDIA and the version of NCCL, and says how to add missing parts. It
// exits with status 1 if neither an RDMA device nor a GPU can be used.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"

	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/device/nccl"
	"github.com/nexar-go/nexar/hw/transport/rdma"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == "bench" {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
		err := bench(ctx, os.Args[2:], os.Stdout)
		stop()
		switch {
		case errors.Is(err, flag.ErrHelp):
		case err != nil:
			fmt.Fprintln(os.Stderr, "nexar-hw:", err)
			os.Exit(1)
		}
		return
	}
	if len(os.Args) != 2 || os.Args[1] != "doctor" {
		fmt.Fprintln(os.Stderr, "usage: nexar-hw doctor | bench [flags]")
		os.Exit(2)
	}
	usable := rdma.Diagnose(os.Stdout, rdma.Config{})
	if diagnoseGPUs(os.Stdout, "", "") {
		usable = true
	}
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
