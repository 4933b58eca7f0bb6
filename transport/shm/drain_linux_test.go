package shm

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// TestReadAfterTheEndOfThePeer: a process writes and ends at once. What has arrived from it is read before the conn ends,
// however slow the reader is.
func TestReadAfterTheEndOfThePeer(t *testing.T) {
	a, b := newPair(t, Config{})
	s, r := newPipe(t, b, a)
	want := bytes.Repeat([]byte("0123456789abcdef"), 4<<10)
	if _, err := s.Write(want); err != nil {
		t.Fatal(err)
	}
	b.endpoint.kill()
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
	if !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("got error %v, want %v", err, transport.ErrPeerGone)
	}
	<-a.Done()
}
