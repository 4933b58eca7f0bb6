// Package verbsfake builds and controls a libibverbs in C for tests on machines without RDMA. Its device connects memory of
// one process, and its queue pairs fail where a test wants them to. It accesses memory of the driver of package cudafake as a
// network card does that of a GPU. It needs a C compiler.
package verbsfake

import (
	"cmp"
	"embed"
	"io/fs"
	"math/bits"
	"net/netip"
	"sync"
	"syscall"
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
	fail                         func()
	portDown, remove             func(int32)
	device                       func(n, device, windows, ports int32)
	port                         func(device, port, active, mtu, lid int32, gid *byte)
	fails                        func(call string, code int32)
	accesses                     func() int32
	route                        func(qp uint32, to *route) int32
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
		"fakeverbs_remove": &f.remove, "fakeverbs_device": &f.device, "fakeverbs_port": &f.port, "fakeverbs_error": &f.fails,
		"fakeverbs_accesses": &f.accesses, "fakeverbs_route": &f.route,
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

// PortDown reports that a port of all devices is down. Queue pairs stay as they are.
func (f *Fake) PortDown(port int) { f.portDown(int32(port)) }

// Remove removes the devices until it is called with false: their contexts learn of it, requests neither arrive nor complete
// any more, and objects can only be destroyed.
func (f *Fake) Remove(on bool) { f.remove(number(on)) }

// Error lets calls of a function fail with an error, or with 0 none: a function that makes an object, such as ibv_create_cq,
// ibv_get_device_list, ibv_get_cq_event or ibv_get_async_event, or ibv_modify_qp for the connection to a peer.
func (f *Fake) Error(call string, code syscall.Errno) { f.fails(call, int32(code)) }

// A Device is a device with up to two ports.
type Device struct {
	NoWindows bool // the device has no memory windows
	Ports     []Port
}

// A Port is a port of a device.
type Port struct {
	Down bool
	MTU  int        // 4096 if 0
	LID  uint16     // not 0 for a port of InfiniBand
	GID  netip.Addr // 10.0.0.1 if it is not valid
}

// Configure sets the devices, at most two, which are named fake0 and fake1: by default one with a port of Ethernet. It applies to those
// that are opened later.
func (f *Fake) Configure(devices ...Device) {
	if len(devices) == 0 {
		f.device(0, 0, 0, 0)
	}
	for i, d := range devices {
		f.device(int32(len(devices)), int32(i), number(!d.NoWindows), int32(len(d.Ports)))
		for k, p := range d.Ports {
			mtu := int32(bits.Len(uint(cmp.Or(p.MTU, 4096))) - 8)
			if !p.GID.IsValid() {
				p.GID = netip.AddrFrom4([4]byte{10, 0, 0, 1})
			}
			gid := p.GID.As16()
			f.port(int32(i), int32(k+1), number(!p.Down), mtu, int32(p.LID), &gid[0])
		}
	}
}

// route is struct route of the library.
type route struct {
	port, pathPort, mtu, global, trafficClass, lid, serviceLevel uint32
	gid                                                          [16]byte
}

// A Route is how a queue pair reaches its peer.
type Route struct {
	Port, MTU, TrafficClass, ServiceLevel int
	LID                                   uint16     // of the peer
	GID                                   netip.Addr // of the peer; not valid if the packets have no GIDs
}

// Route returns the route of a queue pair. It reports false if there is no such queue pair, or its ports differ.
func (f *Fake) Route(qp uint32) (Route, bool) {
	r := new(route)
	if f.route(qp, r) == 0 || r.port != r.pathPort {
		return Route{}, false
	}
	to := Route{Port: int(r.port), MTU: 128 << r.mtu, TrafficClass: int(r.trafficClass), ServiceLevel: int(r.serviceLevel), LID: uint16(r.lid)}
	if r.global != 0 {
		to.GID = netip.AddrFrom16(r.gid).Unmap()
	}
	return to, true
}

// Accesses returns the flags that any registration so far had.
func (f *Fake) Accesses() int { return int(f.accesses()) }

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
