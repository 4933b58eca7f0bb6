//go:build unix

package clustertest

import "syscall"

// quit makes a Go program show its goroutines and end.
const quit = syscall.SIGQUIT
