package node

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/testhost"
)

// TestProcessEndedIsGentle: a process that accepts and cuts every connection, as one that is ending, is asked again after pauses that grow.
func TestProcessEndedIsGentle(t *testing.T) {
	l, err := net.Listen("tcp", testhost.FreePort(t))
	if err != nil {
		t.Fatal(err)
	}
	cuts := make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			c, err := l.Accept()
			if err != nil {
				break
			}
			c.Close()
		}
		cuts <- n
	}()
	s := &sockets{}
	ctx, cancel := context.WithTimeout(t.Context(), 60*endedPause)
	defer cancel()
	if s.processEnded(ctx, l.Addr().String()) {
		t.Error("the process has ended, want that it may live")
	}
	l.Close()
	if n := <-cuts; n > 6 {
		t.Errorf("%d connections, want at most 6", n)
	}
	ctx, cancel = context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if !s.processEnded(ctx, l.Addr().String()) {
		t.Error("the process may live, want that it has ended")
	}
}
