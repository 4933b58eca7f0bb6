//go:build unix

package cluster

import "syscall"

// quit makes a Go program show its goroutines and end.
const quit = syscall.SIGQUIT
