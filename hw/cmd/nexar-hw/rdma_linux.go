package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/nexar-go/nexar/device"
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
	h.Settings = settings
	h.Locks = "a link over RDMA locks about 2 MiB"
	h.Diagnose = append(h.Diagnose, command.Diagnosis{
		Kind: "rdma", Examine: func(w io.Writer) bool { return rdma.Diagnose(w, rdma.Config{}) },
	})
}

const settings = `
  ` + rdma.DeviceVariable + ` names the RDMA device, such as mlx5_0. ` + rdma.PortVariable + `
  is its port, from 1 on, and ` + rdma.GIDVariable + ` the address of the port: an index of its
  table, or an address such as 10.0.0.1. They apply to doctor, bench --transport rdma
  and programs that "nexar-hw run" starts, unless the program chooses the device.
`

// diagnoseRDMA writes how the RDMA device accesses the memory of a GPU, if there is one, or why the GPU does not let it.
func diagnoseRDMA(w io.Writer, b device.Buffer) {
	gpu := b.Device().(device.Direct)
	m, err := gpu.Direct(b)
	if err != nil {
		fmt.Fprintf(w, "vectors for other hosts are copied through memory of the host: %v\n", err)
		return
	}
	rdma.DiagnoseDevice(w, rdma.Config{}, gpu.Name(), rdma.DeviceMemory{Address: m.Address, Bytes: m.Bytes, DMABuf: m.DMABuf})
}
