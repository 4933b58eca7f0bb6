package comm

import (
	"testing"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/negotiate"
)

// If the service of remote calls cannot start, its carrier is closed, and the communicator can be closed.
func TestCloseWithoutCalls(t *testing.T) {
	e := engine.New(engine.Config{})
	defer e.Close()
	c := &Comm{
		View: newComm(1).View, Engine: e.NewComm(1, 0, []*link.Link{nil}), Nodes: make([]membership.Node, 1),
		reached: negotiate.Result{Part: negotiate.NoPart},
	}
	c.View.config.CallsInFlight = -1
	carrier := e.NewLooseComm(2, 0, []*link.Link{nil})
	if err := c.serve(carrier); err == nil {
		t.Error("service with -1 calls in flight has started")
	}
	c.Close()
	if err := carrier.Err(); err != engine.ErrClosed {
		t.Errorf("carrier has ended with %v, want %v", err, engine.ErrClosed)
	}
}
