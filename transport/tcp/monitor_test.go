package tcp

import "testing"

// TestMonitorWithoutTraffic: the monitor of an idle transport waits, and samples a socket that comes into use.
func TestMonitorWithoutTraffic(t *testing.T) {
	nodes := newTestNodes(t, 2, Config{})
	c, _ := connect(t, nodes[0], nodes[1])
	w := &c.t.monitoring
	eventually(t, "the end of samples", w.parked.Load)
	pipe, err := c.OpenPipe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := pipe.(*sender)
	for range 3 {
		eventually(t, "the end of samples", w.parked.Load)
		if _, err := s.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a sample after the write", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			return s.path.sent == s.sent
		})
	}
}
