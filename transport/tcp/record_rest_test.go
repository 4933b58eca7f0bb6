package tcp

import (
	"testing"
	"time"

	"github.com/nexar-go/nexar/transport"
)

// TestPartialRecord checks that the monitor knows of a reader that waits for the rest of a TLS record until
// the rest arrives, with and without polling.
func TestPartialRecord(t *testing.T) {
	_, polled := any((*receiver)(nil)).(transport.Poller)
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
		if name == "poll" && !polled {
			continue
		}
		t.Run(name, func(t *testing.T) {
			nodes := newTestNodes(t, 2, Config{})
			from, to := connect(t, nodes[0], nodes[1])
			s, r := pipeBetween(t, from, to)
			waits := func() bool { return r.waits.Load() && r.ps.records.partial.Load() != 0 }
			header := []byte{23, 3, 3, 0, 100} // of a record with 100 bytes; half of them arrive
			if _, err := s.ps.socket.Write(append(header, make([]byte, 50)...)); err != nil {
				t.Fatal(err)
			}
			waited := make(chan struct{})
			go func() {
				defer close(waited)
				wait(r)
			}()
			eventually(t, "a reader that waits for the rest", waits)
			if _, err := s.ps.socket.Write(make([]byte, 50)); err != nil {
				t.Fatal(err)
			}
			<-waited
			if waits() {
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
	records := &recordConn{}
	r := &receiver{conn: c, ps: &pipeSocket{records: records}} // unknown to the monitor of the transport
	limit, _ := nodes[0].Transport.hostTimeout()
	samples := int(limit / monitorInterval)
	r.waits.Store(true)
	for i := range uint64(3) {
		records.partial.Store(100 + i)
		for k := range samples {
			if !r.sampleRecord() || c.Err() != nil {
				t.Fatalf("the conn has ended %v after the last byte: %v", time.Duration(k)*monitorInterval, c.Err())
			}
		}
	}
	r.waits.Store(false)
	for range samples + 1 {
		if r.sampleRecord() || c.Err() != nil {
			t.Fatalf("a reader that does not wait for the socket waits for a rest, and the conn has ended: %v", c.Err())
		}
	}
	r.waits.Store(true)
	for range samples + 1 {
		r.sampleRecord()
	}
	if c.Err() == nil {
		t.Errorf("the rest of a record has not arrived for %v, and the conn has not ended", limit)
	}
}
