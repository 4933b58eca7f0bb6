package comm

import (
	"testing"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/negotiate"
)

// A communicator whose service of calls cannot start can be closed, and its carrier is.
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
		t.Error("a service with -1 calls in flight has started")
	}
	c.Close()
	if err := carrier.Err(); err != engine.ErrClosed {
		t.Errorf("the carrier: %v, want %v", err, engine.ErrClosed)
	}
}
