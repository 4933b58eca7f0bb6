package tcp

import (
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// TestRestOfRecord checks that a reader that waits for the rest of a TLS record says so until the rest
// arrives, with and without polling.
func TestRestOfRecord(t *testing.T) {
	for name, wait := range map[string]func(r *receiver){
		"read": func(r *receiver) { r.Read(make([]byte, 1)) },
		"poll": func(r *receiver) {
			p := any(r).(transport.Poller)
			if n, err := p.TryRead(make([]byte, 1)); n != 0 || err != nil {
				t.Errorf("TryRead of a partial record: %d bytes, %v, want 0 and nil", n, err)
			}
			p.WaitReadable()
		},
	} {
		t.Run(name, func(t *testing.T) {
			nodes := newTestNodes(t, 2, Config{})
			from, to := connect(t, nodes[0], nodes[1])
			s, r := pipeBetween(t, from, to)
			if _, ok := any(r).(transport.Poller); !ok && name == "poll" {
				t.Skip("pipes cannot be polled here")
			}
			if r.rest.Load() != 0 {
				t.Error("a reader of complete records waits for a rest")
			}
			header := []byte{23, 3, 3, 0, 100} // of a record with 100 bytes, of which half arrive
			if _, err := s.currentFlow().sock.Write(append(header, make([]byte, 50)...)); err != nil {
				t.Fatal(err)
			}
			waited := make(chan struct{})
			go func() {
				defer close(waited)
				wait(r)
			}()
			eventually(t, "a reader that waits for the rest", func() bool { return r.rest.Load() != 0 })
			if _, err := s.currentFlow().sock.Write(make([]byte, 50)); err != nil {
				t.Fatal(err)
			}
			<-waited
			if r.rest.Load() != 0 {
				t.Error("the reader still waits for a rest that has arrived")
			}
		})
	}
}

// TestAlteredRecordLength checks that a conn ends if the rest of a TLS record has not arrived in the time that a
// host may be silent, and not while bytes of the record arrive.
func TestAlteredRecordLength(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	c, _ := connect(t, nodes[0], nodes[1])
	r := &receiver{conn: c} // unknown to the monitor of the transport
	limit, _ := nodes[0].Transport.hostTimeout()
	samples := int(limit / monitorInterval)
	for rest := range uint64(3) {
		r.rest.Store(100 + rest)
		for i := range samples {
			if !r.sampleRest() || c.Err() != nil {
				t.Fatalf("the conn has ended %v after the last byte: %v", time.Duration(i)*monitorInterval, c.Err())
			}
		}
	}
	if r.rest.Store(0); r.sampleRest() {
		t.Error("a reader with a complete record waits for a rest")
	}
	r.rest.Store(100)
	for range samples + 1 {
		r.sampleRest()
	}
	if c.Err() == nil {
		t.Errorf("the rest of a record has not arrived for %v, and the conn has not ended", limit)
	}
}
