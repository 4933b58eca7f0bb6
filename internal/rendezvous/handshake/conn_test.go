//race:none tests of other packages use it with goroutines

package handshake

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A haltingReceiver lets a number of deadlines pass, and then returns the content of its
// buffer byte by byte.
type haltingReceiver struct {
	transport.Receiver
	silent int
	bytes.Buffer
}

func (r *haltingReceiver) SetReadDeadline(time.Time) error { return nil }

func (r *haltingReceiver) Read(p []byte) (int, error) {
	if r.silent > 0 {
		r.silent--
		return 0, os.ErrDeadlineExceeded
	}
	return r.Buffer.Read(p[:1])
}

// TestReadWithin: a process that was stopped until a deadline had passed reads the next
// message; a peer that stays silent is an error.
func TestReadWithin(t *testing.T) {
	for silent := range silenceParts + 1 {
		in := &haltingReceiver{silent: silent}
		in.Write(Frame(wire.JoinQuiesced{Epoch: 7, Timeout: 3}))
		m, err := (&Conn{in: in}).ReadWithin(time.Second)
		switch {
		case silent == silenceParts:
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("from a silent peer: %v, %v", m, err)
			}
		case err != nil || m != wire.JoinMessage(wire.JoinQuiesced{Epoch: 7, Timeout: 3}):
			t.Errorf("after %d parts of the time: %v, %v", silent, m, err)
		}
	}
}

func TestOutbox(t *testing.T) {
	o := NewOutbox()
	o.Post([]byte("a"))
	o.Post([]byte("b"))
	if frames, last := o.take(); last || len(frames) != 2 {
		t.Errorf("%q, last %v", frames, last)
	}
	o.Close([]byte("c"))
	o.Post([]byte("too late"))
	o.Close([]byte("twice"))
	frames, last := o.take()
	if !last || !slices.EqualFunc(frames, []string{"c"}, func(b []byte, s string) bool { return string(b) == s }) {
		t.Errorf("%q, last %v", frames, last)
	}
	if len(o.wake) != 1 {
		t.Error("Run is not woken")
	}
}
