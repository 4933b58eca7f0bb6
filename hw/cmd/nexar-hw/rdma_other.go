//go:build !linux

package main

import (
	"io"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/internal/command"
)

// addRDMA adds nothing: RDMA needs Linux.
func addRDMA(*command.Hardware) {}

// diagnoseRDMA writes nothing.
func diagnoseRDMA(io.Writer, device.Buffer) {}
