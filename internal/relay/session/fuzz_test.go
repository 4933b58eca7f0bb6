package session

import (
	"crypto/tls"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/relay/forward"
)

// Frames of a peer that does not keep the protocol end the session at most, and the memory is bounded.
func FuzzItems(f *testing.F) {
	open := item{kind: itemOpen}.append(nil)
	f.Add(open, append(item{itemData, 0, 3}.append(nil), 1, 2, 3))
	f.Add(append(open, item{itemOpen, 1, 0}.append(nil)...), item{itemEnd, 0, 0}.append(nil))
	f.Add(item{itemCredit, 0, 1 << 31}.append(nil), item{itemStop, 0, 0}.append(nil))
	f.Add(item{itemClose, 0, 0}.append(nil), open)
	f.Fuzz(func(t *testing.T, first, second []byte) {
		now := time.Unix(1, 0)
		secret := make([]byte, secretSize)
		s := &Session{cfg: Config{Silence: time.Second}, state: stateOpen, keys: keys{sealData: newKey(secret), sealAck: newKey(secret)}}
		s.handshake.conn, s.handshake.done = tls.QUICClient(&tls.QUICConfig{TLSConfig: &tls.Config{}}), true
		s.mux.init()
		own := s.Open(now)
		s.Write(now, own, make([]byte, 1000))
		for range 3 {
			s.handle(now, first)
			s.handle(now, second)
		}
		unread := 0
		for _, p := range s.mux.incoming {
			unread += p.unread
		}
		if unread > PipesMax*PipeWindow || len(s.mux.incoming) > PipesMax || own.credit > PipeWindow {
			t.Errorf("%d bytes in %d pipes are unread; the credit of a pipe is %d", unread, len(s.mux.incoming), own.credit)
		}
	})
}

// Frames that anyone in the cluster can send do not end an established session and do not make it panic.
func FuzzForged(f *testing.F) {
	f.Add(uint8(1), uint64(0), []byte{0, 1})
	f.Add(uint8(2), uint64(0), make([]byte, acksSize))
	f.Add(uint8(3), uint64(0), []byte("no"))
	f.Add(uint8(4), uint64(0), make([]byte, 40))
	f.Add(uint8(5), uint64(1<<40), make([]byte, acksSize+tagSize))
	f.Fuzz(func(t *testing.T, kind uint8, seq uint64, payload []byte) {
		secret := make([]byte, secretSize)
		other := append([]byte{1}, secret[1:]...)
		k := keys{newKey(secret), newKey(secret), newKey(other), newKey(other)}
		s := &Session{state: stateOpen, keys: k, client: true}
		s.handshake.done = true
		s.mux.init()
		if v := s.Receive(time.Unix(1, 0), forward.Frame{Kind: forward.Kind(kind), Seq: seq, Payload: payload}); v == Accepted || s.Err() != nil {
			t.Errorf("a forged frame of kind %d: %v, the session has error %v", kind, v, s.Err())
		}
	})
}
