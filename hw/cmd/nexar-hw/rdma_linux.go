package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/transport/rdma"
	"github.com/nexar-go/nexar/internal/command"
	"github.com/nexar-go/nexar/transport"
)

// addRDMA adds RDMA to the command.
func addRDMA(h *command.Hardware) {
	h.Transports = map[string]func() (transport.Factory, error){"rdma": func() (transport.Factory, error) {
		if !rdma.Diagnose(io.Discard, rdma.Config{}) {
			return transport.Factory{}, errors.New("rdma: no device can be used: see 'nexar-hw doctor'")
		}
		return rdma.Factory(rdma.Config{}), nil
	}}
	h.Diagnose = append(h.Diagnose, command.Diagnosis{
		Kind: "rdma", Examine: func(w io.Writer) bool { return rdma.Diagnose(w, rdma.Config{}) },
	})
}

// diagnoseRDMA writes how the RDMA device accesses the memory of a GPU, if there is one.
func diagnoseRDMA(w io.Writer, b device.Buffer) {
	address, err := cuda.Pointer(b)
	if err != nil {
		fmt.Fprintln(w, err)
		return
	}
	rdma.DiagnoseDevice(w, rdma.Config{}, b.Device().Name(), rdma.DeviceMemory{
		Address: address, Bytes: b.Len(), DMABuf: func() (int, int64, error) { return cuda.DMABuf(b) },
	})
}
