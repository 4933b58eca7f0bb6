//go:build !linux

package main

import "github.com/nexar-go/nexar/internal/command"

// addRDMA adds nothing: RDMA needs Linux.
func addRDMA(*command.Hardware) {}
