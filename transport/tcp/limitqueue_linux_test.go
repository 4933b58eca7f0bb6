package tcp

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/transport"
)

// TestLimitQueue: while nobody reads, a pipe with a limit holds no more unsent bytes than the limit and one write.
func TestLimitQueue(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{Plain: true})
	dialed, accepted := connect(t, nodes[0], nodes[1])
	unsent := func(limit int) (waiting int) {
		s, _ := pipeBetween(t, dialed, accepted)
		if limit > 0 {
			transport.CapabilitiesOf(s).QueueLimiter.LimitQueue(limit)
		}
		s.SetWriteDeadline(time.Now().Add(time.Second))
		for b, err := make([]byte, 16<<10), error(nil); err == nil; {
			if _, err = s.Write(b); err != nil && !os.IsTimeout(err) {
				t.Fatal(err)
			}
		}
		s.ps.raw.Control(func(fd uintptr) { waiting, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQNSD) })
		return waiting
	}
	const limit, slack = 64 << 10, 64 << 10
	if with, without := unsent(limit), unsent(0); with > limit+slack || without < 2*(limit+slack) {
		t.Errorf("%d bytes wait with a limit of %d, and %d without", with, limit, without)
	}
}
