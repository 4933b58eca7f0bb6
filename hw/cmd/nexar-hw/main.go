//go:build linux

// Command nexar-hw examines the hardware of this host that nexar can use.
//
//	nexar-hw doctor
//
// It exits with status 1 if no RDMA device can be used.
package main

import (
	"fmt"
	"os"

	"github.com/nexar-go/nexar/hw/transport/rdma"
)

func main() {
	if len(os.Args) != 2 || os.Args[1] != "doctor" {
		fmt.Fprintln(os.Stderr, "usage: nexar-hw doctor")
		os.Exit(2)
	}
	if !rdma.Diagnose(os.Stdout, rdma.Config{}) {
		os.Exit(1)
	}
}
