package mesh

import (
	"testing"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

// A fallbackConn is a conn that has left its transport if then is not nil.
type fallbackConn struct {
	transport.Conn
	then *transport.Fallback
}

func (c *fallbackConn) RemoteAddr() string            { return "10.0.0.2:1" }
func (c *fallbackConn) Fallback() *transport.Fallback { return c.then }
func (c *fallbackConn) Capabilities() transport.Capabilities {
	return transport.Capabilities{FallbackConn: c}
}

// A namedTransport has a name only.
type namedTransport struct{ transport.Transport }

func (namedTransport) Name() string { return "fast" }

// TestInfoAfterFallback: a PathInfo has the transport that carries the bytes now, also if the bulk lane has another one.
func TestInfoAfterFallback(t *testing.T) {
	c := &fallbackConn{}
	whole := route{path: &Path{Transport: namedTransport{}}, conn: c, why: "best"}
	beside := whole
	beside.bulk = &Path{Transport: namedTransport{}, Name: "bulk", Encrypted: true}
	type seen struct {
		transport, bulk string
		encrypted       bool
		reason          string
	}
	check := func(r *route, want seen) {
		t.Helper()
		i := r.info(1, membership.NodeID{})
		if got := (seen{i.Transport, i.BulkTransport, i.Encrypted, i.Reason}); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	check(&whole, seen{"fast", "fast", false, "best"})
	check(&beside, seen{"fast", "bulk", false, "best"})
	c.then = &transport.Fallback{Transport: "tcp+tls", Encrypted: true, Reason: "the device was removed"}
	check(&whole, seen{"tcp+tls", "tcp+tls", true, "the device was removed"})
	check(&beside, seen{"tcp+tls", "bulk", true, "the device was removed"})
}
