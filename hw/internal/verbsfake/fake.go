// Package verbsfake builds and controls a libibverbs in C for tests on machines without RDMA. Its device connects memory of
// one process, and its queue pairs fail where a test wants them to. It needs a C compiler.
package verbsfake

import (
	_ "embed"

	"github.com/nexar-go/nexar/hw/internal/cudafake"
	"github.com/nexar-go/nexar/hw/internal/verbs"
)

//go:embed c/verbs.c
var source []byte

// A Fake controls the library of this process.
type Fake struct {
	breakAt  func(n int64, how, lag, undelivered int32)
	requests func() int64
	trigger  func() int32
	stall    func(on int32)
	portDown func()
	live     func() int32
}

// Load builds the library and makes package verbs use it. Call it before the first use of package verbs, once.
func Load() (*Fake, error) {
	f := new(Fake)
	path, err := cudafake.BuildAndOpen("ibverbs", source, map[string]any{
		"fakeverbs_break": &f.breakAt, "fakeverbs_requests": &f.requests, "fakeverbs_trigger": &f.trigger,
		"fakeverbs_stall": &f.stall, "fakeverbs_port_down": &f.portDown, "fakeverbs_live": &f.live,
	})
	if err != nil {
		return nil, err
	}
	verbs.Library = path
	return f, nil
}

// A Side is the side of the queue pair that fails.
type Side int32

// The sides of a request.
const (
	Sender Side = iota
	Receiver
	Both
)

// A Break is the failure of a connection.
type Break struct {
	// At is the number of the request of any queue pair, from 1 on, at which its connection breaks. 0 breaks none.
	At   int
	Side Side
	// Arrives says that the request arrives first; its acknowledgement does not.
	Arrives bool
	// InFlight is the number of requests before it that have not completed by then, and with Lost not arrived either.
	InFlight int
	Lost     bool
}

// Break sets the next break and begins to count requests.
func (f *Fake) Break(b Break) {
	how, lost := int32(2*b.Side), int32(0)
	if b.Arrives {
		how++
	}
	if b.Lost {
		lost = 1
	}
	f.breakAt(int64(b.At), how, int32(b.InFlight), lost)
}

// Requests returns the number of requests since the last call of Break.
func (f *Fake) Requests() int { return int(f.requests()) }

// Trigger breaks a connection at once if one of its requests is in flight, and reports whether the break has happened. Callers
// without progress use it: the requests in flight would complete only after the break.
func (f *Fake) Trigger() bool { return f.trigger() != 0 }

// Stall lets requests neither complete nor fail from now on, as a defect of a device or driver does.
func (f *Fake) Stall(on bool) {
	var n int32
	if on {
		n = 1
	}
	f.stall(n)
}

// PortDown reports that the port of all devices is down.
func (f *Fake) PortDown() { f.portDown() }

// Live returns the number of objects of the library.
func (f *Fake) Live() int { return int(f.live()) }
