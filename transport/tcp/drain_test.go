package tcp

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// TestReadAfterTheEndOfThePeer: a process writes and ends at once. What has arrived from it is read before the conn ends,
// however slow the reader is.
func TestReadAfterTheEndOfThePeer(t *testing.T) {
	for name, plain := range map[string]bool{"tls": false, "plain": true} {
		t.Run(name, func(t *testing.T) {
			nodes := newTestNodes(t, 2, Config{Plain: plain})
			a, b := connect(t, nodes[0], nodes[1])
			s, r := pipeBetween(t, b, a)
			want := bytes.Repeat([]byte("0123456789abcdef"), 1<<10)
			if _, err := s.Write(want); err != nil {
				t.Fatal(err)
			}
			nodes[1].kill()
			var got []byte
			var err error
			for err == nil {
				_, err = r.ReadFunc(16, func(p []byte) { got = append(got, p...) })
				if len(got) < 320 {
					time.Sleep(time.Millisecond) // The end of the peer is noticed meanwhile.
				}
			}
			if !bytes.Equal(got, want) {
				t.Errorf("read %d bytes of %d before %v", len(got), len(want), err)
			}
			if !errors.Is(err, transport.ErrPeerGone) || errors.Is(err, io.EOF) {
				t.Errorf("got error %v, want %v", err, transport.ErrPeerGone)
			}
			<-a.Done()
		})
	}
}

// TestProtocolErrorEndsAtOnce: a conn whose peer violates the protocol does not wait for a reader.
func TestProtocolErrorEndsAtOnce(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	const tries = 5 // The machine may be slow.
	for n := 1; ; n++ {
		a, b := connect(t, nodes[0], nodes[1])
		s, _ := pipeBetween(t, a, b)
		if _, err := s.Write([]byte("data")); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		a.send(message{kind: '?'})
		awaitEnd(t, b, transport.ErrPeerGone)
		if time.Since(start) < drainTicks*drainInterval {
			return
		} else if n == tries {
			t.Fatalf("each of %d conns ends after %v or more", tries, drainTicks*drainInterval)
		}
	}
}
