// Package verbsfake builds and controls a libibverbs in C for tests on machines without RDMA. Its device connects memory of
// one process, and its queue pairs fail where a test wants them to. It accesses memory of the driver of package cudafake as a
// network card does that of a GPU. It needs a C compiler.
package verbsfake

import (
	"embed"
	"io/fs"
	"sync"
	"testing"

	"github.com/nexar-go/nexar/hw/internal/cudafake"
	"github.com/nexar-go/nexar/hw/internal/verbs"
)

//go:embed c/*.c c/*.h
var source embed.FS

// A Fake controls the library of this process.
type Fake struct {
	breakAt                      func(n int64, how, lag, undelivered int32)
	requests                     func() int64
	trigger, held                func() int32
	stall, hold                  func(on int32)
	fail, portDown               func()
	refuse                       func(dmaBuf, peer int32)
	registered, live             func() int32
	deviceRead, written, strayed func() uint64
}

// Load returns the library of this process, which is built at the first call. Package verbs uses it from then on: the first call
// comes before the first use of that package. See also [New].
var Load = sync.OnceValues(func() (*Fake, error) {
	files, err := fs.Sub(source, "c")
	if err != nil {
		return nil, err
	}
	f := new(Fake)
	path, err := cudafake.BuildAndOpen("ibverbs", files, map[string]any{
		"fakeverbs_break": &f.breakAt, "fakeverbs_requests": &f.requests, "fakeverbs_trigger": &f.trigger, "fakeverbs_held": &f.held,
		"fakeverbs_stall": &f.stall, "fakeverbs_hold": &f.hold, "fakeverbs_fail": &f.fail, "fakeverbs_port_down": &f.portDown,
		"fakeverbs_refuse": &f.refuse, "fakeverbs_registered": &f.registered, "fakeverbs_live": &f.live,
		"fakeverbs_device_read": &f.deviceRead, "fakeverbs_device_written": &f.written, "fakeverbs_strays": &f.strayed,
	}, "-fvisibility=hidden")
	if err != nil {
		return nil, err
	}
	verbs.Library = path
	return f, nil
})

// New returns the library of this process, as [Load] does, for tests with memory of GPUs. Without a C compiler it skips the test,
// or fails it if NEXAR_REQUIRE lists "cc".
func New(tb testing.TB) *Fake {
	tb.Helper()
	cudafake.New(tb)
	f, err := Load()
	if err != nil {
		tb.Fatalf("the fake of libibverbs cannot be built: %v", err)
	}
	return f
}

// number returns the number of a condition in C.
func number(on bool) int32 {
	if on {
		return 1
	}
	return 0
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
	f.breakAt(int64(b.At), int32(2*b.Side)+number(b.Arrives), int32(b.InFlight), number(b.Lost))
}

// Requests returns the number of requests since the last call of Break.
func (f *Fake) Requests() int { return int(f.requests()) }

// Trigger breaks a connection at once if one of its requests is in flight, and reports whether the break has happened. Callers
// without progress use it: the requests in flight would complete only after the break.
func (f *Fake) Trigger() bool { return f.trigger() != 0 }

// Fail fails all queue pairs.
func (f *Fake) Fail() { f.fail() }

// Stall lets requests neither complete nor fail until it is called with false, as a defect of a device or driver does.
func (f *Fake) Stall(on bool) { f.stall(number(on)) }

// Hold lets remote writes, and later requests of their queue pairs, wait until it is called with false.
func (f *Fake) Hold(on bool) { f.hold(number(on)) }

// Held returns the number of queue pairs with a remote write that waits.
func (f *Fake) Held() int { return int(f.held()) }

// PortDown reports that the port of all devices is down.
func (f *Fake) PortDown() { f.portDown() }

// Refuse lets registrations of memory of GPUs fail.
func (f *Fake) Refuse(dmaBuf, peer bool) { f.refuse(number(dmaBuf), number(peer)) }

// Registered returns the number of registrations of memory of GPUs.
func (f *Fake) Registered() int { return int(f.registered()) }

// Live returns the number of objects of the library, from open devices to memory windows.
func (f *Fake) Live() int { return int(f.live()) }

// Read and Written return the bytes of memory of GPUs that the network card has read and written so far.
func (f *Fake) Read() uint64    { return f.deviceRead() }
func (f *Fake) Written() uint64 { return f.written() }

// Strays returns the number of accesses to memory of GPUs that was freed.
func (f *Fake) Strays() uint64 { return f.strayed() }
