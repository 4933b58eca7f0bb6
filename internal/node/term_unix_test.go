//go:build unix

package node

import (
	"syscall"
	"testing"
	"time"
)

// TestOnTerm: a SIGTERM is heard once, and not after stop.
func TestOnTerm(t *testing.T) {
	heard := make(chan struct{}, 2)
	stop := OnTerm(func() { heard <- struct{}{} })
	defer stop()
	deaf := OnTerm(func() { t.Error("one that was stopped hears it") })
	deaf()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-heard:
	case <-time.After(time.Minute):
		t.Fatal("it is not heard")
	}
	stop()
	stop()
}
