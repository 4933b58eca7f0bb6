//go:build unix

package node

import (
	"syscall"
	"testing"
	"time"
)

// TestOnTerm checks that OnTerm calls f for a SIGTERM, and not after stop.
func TestOnTerm(t *testing.T) {
	called := make(chan struct{}, 2)
	stop := OnTerm(func() { called <- struct{}{} })
	defer stop()
	stopped := OnTerm(func() { t.Error("f was called after stop") })
	stopped()
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-called:
	case <-time.After(time.Minute):
		t.Fatal("f was not called within a minute")
	}
	stop()
	stop()
}
