//go:build !linux

package tcp

// A poller has the deadline of a receiver, which cannot be polled here.
type poller struct{ readDeadline }

func (k *poller) init(r *receiver) {
	k.r = r
	if r.ps.records != nil {
		r.ps.records.setSource(socketReader{r})
	}
}

// A socketReader is the source of a tls.Conn.
type socketReader struct{ r *receiver }

func (f socketReader) Read(p []byte) (int, error) { return f.r.readSocket(p) }

func (*poller) beginRead() {}

func (*poller) setTLSPending(all, none bool) {}

func (*receiver) updateBuffered() {}
