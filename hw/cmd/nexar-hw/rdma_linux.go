package main

import (
	"errors"
	"io"

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
