package cluster

import (
	"testing"
	"time"
)

// TestSocketsOfLink: a link over TCP has a socket for the messages of the transport, one for its data lanes, and one for its
// control lanes. With QUIC for the control lanes, a socket watches the process of the peer instead. The first long payload in a
// direction opens one more, and later ones none.
func TestSocketsOfLink(t *testing.T) {
	t.Parallel()
	const sockets = 3
	for _, transports := range []string{"tcp", "tcp,quic"} {
		t.Run(transports, func(t *testing.T) {
			workers := newWorkerSet(t).startWorld(2, "NEXAR_TRANSPORTS="+transports)
			send := func(from, n int) {
				t.Helper()
				received := workers[1-from].start(command{Do: "recv", Peer: from, Tag: tagLarge, N: n})
				mustSucceed(t, []result{workers[from].do(command{Do: "send", Peer: 1 - from, Tag: tagLarge, N: n}), workers[1-from].await(received)})
			}
			expect := func(when string, want int) {
				t.Helper()
				var n int
				for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
					if n = socketsBetween(t, workers); n == want { // A connection that was not chosen may end late.
						return
					}
				}
				t.Errorf("%s: %d sockets between two ranks, want %d; peers %+v", when, n, want, workers[0].do(command{Do: "peers"}).Peers)
			}
			const short, long = 1000, 1 << 20
			send(0, short)
			send(1, short)
			expect("after short messages", sockets)
			for range 2 {
				send(0, long)
				expect("after long messages of rank 0", sockets+1)
			}
			for range 2 {
				send(1, long)
				send(0, long)
				expect("after long messages of both ranks", sockets+2)
			}
		})
	}
}

// socketsBetween returns the number of TCP sockets of the first worker that are connected to others.
func socketsBetween(t *testing.T, workers []*worker) (n int) {
	t.Helper()
	mine, owner := connections(t, workers)
	for _, p := range mine[0] {
		if _, ok := owner[socketAddrs{p.remote, p.local}]; ok {
			n++
		}
	}
	return n
}
