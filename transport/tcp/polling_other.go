//go:build !linux

package tcp

// A poller has the deadline of a receiver, which cannot be polled here.
type poller struct{ flowDeadline }

func (k *poller) init(r *receiver) {
	k.r = r
	if r.ps.records != nil {
		r.ps.records.setSource(flowReader{r})
	}
}

// A flowReader is the source of a tls.Conn: the current subflow.
type flowReader struct{ r *receiver }

func (f flowReader) Read(p []byte) (int, error) { return f.r.readFlow(p) }

func (*poller) beginRead() {}

func (*poller) setTLSPending(all, none bool) {}

func (*receiver) updateBuffered() {}
