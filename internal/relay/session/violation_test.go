package session

import (
	"crypto/tls"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/relay/relaytest"
	"github.com/nexar-go/nexar/transport"
)

// openSession returns an established session, and the key of its peer for data.
func openSession() (s *Session, peer *key) {
	ours, theirs := make([]byte, secretSize), slices.Repeat([]byte{1}, secretSize)
	s = &Session{
		cfg:   Config{Self: relaytest.ID(0), Peer: relaytest.ID(1), ID: 7, Silence: time.Second},
		state: stateOpen, keys: keys{newKey(ours), newKey(ours), newKey(theirs), newKey(theirs)},
	}
	s.handshake.conn, s.handshake.done = tls.QUICClient(&tls.QUICConfig{TLSConfig: &tls.Config{}}), true
	s.mux.init()
	return s, newKey(theirs)
}

// sealed returns a frame from the peer of openSession.
func sealed(peer *key, seq uint64, plain []byte) forward.Frame {
	f := forward.Frame{Kind: forward.Data, Source: relaytest.ID(1), Destination: relaytest.ID(0), Session: 7, Seq: seq}
	peer.seal(&f, append(make([]byte, 0, len(plain)+tagSize), plain...))
	return f
}

// TestPeerViolatesProtocol: a peer that sends other items than the protocol permits, or more than its credit, ends the session by
// an error that names it and the item.
func TestPeerViolatesProtocol(t *testing.T) {
	open, end := item{kind: itemOpen}.append(nil), item{kind: itemEnd}.append(nil)
	piece := append(item{itemData, 0, PipeWindow / 16}.append(nil), make([]byte, PipeWindow/16)...)
	one := append(item{itemData, 0, 1}.append(nil), 1)
	var pipes []byte
	for i := range uint32(PipesMax + 1) {
		pipes = item{kind: itemOpen, pipe: i}.append(pipes)
	}
	for want, items := range map[string][]byte{
		"it opens pipe 1, expected 0 with at most 16 open":        item{kind: itemOpen, pipe: 1}.append(nil),
		"it opens pipe 16, expected 16 with at most 16":           pipes,
		"data of pipe 0, which is not open":                       one,
		"1 bytes of pipe 0, which has 262144 unread ones":         slices.Concat(open, slices.Repeat(piece, 16), one),
		"1 bytes of pipe 0, which has 2 unread ones and is ended": slices.Concat(open, item{itemData, 0, 2}.append(nil), []byte{1, 2}, end, one),
		"credit of 5 bytes for pipe 1":                            item{itemCredit, 1, 5}.append(nil),
		"credit of 262145 bytes for pipe 0":                       item{itemCredit, 0, PipeWindow + 1}.append(nil),
		"credit of 1 bytes for pipe 0":                            item{itemCredit, 0, 1}.append(nil),
		"the end of pipe 1, which is not open":                    item{kind: itemStop, pipe: 1}.append(nil),
		"an item of 0 bytes of data in a frame with 0":            slices.Concat(open, item{kind: itemData}.append(nil)),
		"an item of 2 bytes of data in a frame with 1":            slices.Concat(open, item{itemData, 0, 2}.append(nil), []byte{1}),
		"8 bytes after the last item of a frame":                  slices.Concat(open, make([]byte, itemSize-1)),
		"an item of type 9":                                       item{kind: 9}.append(nil),
	} {
		now := time.Unix(1, 0)
		s, _ := openSession()
		s.Open(now)
		s.handle(now, items)
		if err := s.Err(); !errors.Is(err, transport.ErrPeerGone) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), relaytest.ID(1).String()) {
			t.Errorf("got error %v, want %v with the peer and %q", err, transport.ErrPeerGone, want)
		}
	}
}

// TestSenderKeepsCredit: a session sends no byte of a pipe beyond the credit of the peer, however its frames divide the bytes.
func TestSenderKeepsCredit(t *testing.T) {
	for _, first := range []int{1, 1000, sendBuffer} {
		now := time.Unix(1, 0)
		s, _ := openSession()
		p := s.Open(now)
		accepted := s.Write(now, p, make([]byte, first))
		for n := 1; n > 0; accepted += n {
			n = s.Write(now, p, make([]byte, sendBuffer))
		}
		if sent := accepted - len(p.buf); sent != PipeWindow || p.credit != 0 || len(p.buf) != sendBuffer {
			t.Errorf("first write of %d bytes: %d bytes are sent, want %d; the credit is %d, and %d bytes wait", first, sent, PipeWindow, p.credit, len(p.buf))
		}
	}
}

// TestFramesBeyondTheWindow: frames of the peer after a missing one are kept up to the window, and no others: neither one that is
// too far ahead, nor more bytes.
func TestFramesBeyondTheWindow(t *testing.T) {
	now := time.Unix(1, 0)
	s, peer := openSession()
	if v := s.Receive(now, sealed(peer, windowFrames, nil)); v != Unexpected {
		t.Errorf("frame %d, when frame 0 is missing: %v, want %v", windowFrames, v, Unexpected)
	}
	if v := s.Receive(now, sealed(peer, windowFrames-1, nil)); v != Accepted {
		t.Errorf("frame %d, when frame 0 is missing: %v, want %v", windowFrames-1, v, Accepted)
	}
	refused := 0
	for seq := range uint64(windowFrames - 2) {
		switch v := s.Receive(now, sealed(peer, seq+1, make([]byte, plainMax))); v {
		case Accepted:
		case Unexpected:
			refused++
		default:
			t.Fatalf("frame %d: %v", seq+1, v)
		}
	}
	if refused == 0 || s.in.size > windowBytes || s.Err() != nil {
		t.Errorf("%d bytes are kept, want at most %d; %d frames are refused; error %v", s.in.size, windowBytes, refused, s.Err())
	}
}

// TestHeaderIsAuthenticated: a frame is refused if a relay has altered a field of its header, except for those that relays
// and retransmissions change.
func TestHeaderIsAuthenticated(t *testing.T) {
	for name, test := range map[string]struct {
		alter func(f *forward.Frame)
		want  bool
	}{
		"nothing":     {func(*forward.Frame) {}, true},
		"hops":        {func(f *forward.Frame) { f.Hops = 3 }, true},
		"attempt":     {func(f *forward.Frame) { f.Attempt = 3 }, true},
		"kind":        {func(f *forward.Frame) { f.Kind = forward.Ack }, false},
		"source":      {func(f *forward.Frame) { f.Source = relaytest.ID(2) }, false},
		"destination": {func(f *forward.Frame) { f.Destination = relaytest.ID(2) }, false},
		"session":     {func(f *forward.Frame) { f.Session++ }, false},
		"sequence":    {func(f *forward.Frame) { f.Seq++ }, false},
	} {
		s, peer := openSession()
		f := sealed(peer, 5, []byte("plain"))
		test.alter(&f)
		if _, ok := s.keys.openData.open(&f); ok != test.want {
			t.Errorf("%s: the frame is opened: %v, want %v", name, ok, test.want)
		}
	}
}
