// Package verbs binds libibverbs, the library for RDMA hardware, without cgo. [Load] opens the library
// at run time.
//
// Objects are plain handles: their methods do not lock, and nothing is freed by the garbage collector. Each
// object must be closed once, after the objects made from it. Errors name the call and the cause.
//
// The library and the hardware keep addresses of registered memory, so it must not be memory of the Go heap
// unless it is pinned, or reachable, until it is deregistered.
package verbs

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/nexar-go/nexar/hw/internal/dl"
)

// Constants of the header, with the values of the C names in constants.
const (
	LinkInfiniBand = 1
	LinkEthernet   = 2

	portActive = 4

	GIDInfiniBand = 0
	GIDRoCEv1     = 1
	GIDRoCEv2     = 2

	AccessLocalWrite  = 1
	AccessRemoteWrite = 2
	AccessWindowBind  = 16

	capWindow2A = 1 << 23
	capWindow2B = 1 << 24

	windowType2 = 2

	qpReliable = 2
	stateInit  = 1
	stateRTR   = 2
	stateRTS   = 3
	stateError = 6

	opWrite         = 0
	opSendImm       = 3
	opInvalidate    = 7
	opBind          = 8
	flagFence       = 1
	flagSignaled    = 2
	flagInline      = 8
	maskState       = 1
	maskAccess      = 8
	maskPKey        = 16
	maskPort        = 32
	maskAV          = 128
	maskMTU         = 256
	maskTimeout     = 512
	maskRetries     = 1024
	maskRNRRetries  = 2048
	maskRQPSN       = 4096
	maskMaxReads    = 8192
	maskMinRNR      = 32768
	maskSQPSN       = 65536
	maskMaxDestRead = 131072
	maskDestQPN     = 1048576

	// Opcodes of completions.
	DoneSend       = 0
	DoneWrite      = 1
	DoneBind       = 5
	DoneInvalidate = 6
	DoneReceive    = 128

	// Statuses of completions.
	Success          = 0
	StatusFlushed    = 5
	StatusRemoteKey  = 10 // remote access error
	StatusRetries    = 12
	StatusRNRRetries = 13

	eventDeviceFatal = 8
	eventPortActive  = 9
	eventPortError   = 10
)

// constants returns the C names of the constants.
func constants() map[string]uint64 {
	return map[string]uint64{
		"IBV_LINK_LAYER_INFINIBAND": LinkInfiniBand, "IBV_LINK_LAYER_ETHERNET": LinkEthernet, "IBV_PORT_ACTIVE": portActive,
		"IBV_GID_TYPE_IB": GIDInfiniBand, "IBV_GID_TYPE_ROCE_V1": GIDRoCEv1, "IBV_GID_TYPE_ROCE_V2": GIDRoCEv2,
		"IBV_ACCESS_LOCAL_WRITE": AccessLocalWrite, "IBV_ACCESS_REMOTE_WRITE": AccessRemoteWrite, "IBV_ACCESS_MW_BIND": AccessWindowBind,
		"IBV_DEVICE_MEM_WINDOW_TYPE_2A": capWindow2A, "IBV_DEVICE_MEM_WINDOW_TYPE_2B": capWindow2B, "IBV_MW_TYPE_2": windowType2,
		"IBV_QPT_RC": qpReliable, "IBV_QPS_INIT": stateInit, "IBV_QPS_RTR": stateRTR, "IBV_QPS_RTS": stateRTS, "IBV_QPS_ERR": stateError,
		"IBV_WR_RDMA_WRITE": opWrite, "IBV_WR_SEND_WITH_IMM": opSendImm, "IBV_WR_LOCAL_INV": opInvalidate, "IBV_WR_BIND_MW": opBind,
		"IBV_SEND_FENCE": flagFence, "IBV_SEND_SIGNALED": flagSignaled, "IBV_SEND_INLINE": flagInline,
		"IBV_QP_STATE": maskState, "IBV_QP_ACCESS_FLAGS": maskAccess, "IBV_QP_PKEY_INDEX": maskPKey, "IBV_QP_PORT": maskPort,
		"IBV_QP_AV": maskAV, "IBV_QP_PATH_MTU": maskMTU, "IBV_QP_TIMEOUT": maskTimeout, "IBV_QP_RETRY_CNT": maskRetries,
		"IBV_QP_RNR_RETRY": maskRNRRetries, "IBV_QP_RQ_PSN": maskRQPSN, "IBV_QP_MAX_QP_RD_ATOMIC": maskMaxReads,
		"IBV_QP_MIN_RNR_TIMER": maskMinRNR, "IBV_QP_SQ_PSN": maskSQPSN, "IBV_QP_MAX_DEST_RD_ATOMIC": maskMaxDestRead, "IBV_QP_DEST_QPN": maskDestQPN,
		"IBV_WC_SEND": DoneSend, "IBV_WC_RDMA_WRITE": DoneWrite, "IBV_WC_BIND_MW": DoneBind, "IBV_WC_LOCAL_INV": DoneInvalidate, "IBV_WC_RECV": DoneReceive,
		"IBV_WC_SUCCESS": Success, "IBV_WC_WR_FLUSH_ERR": StatusFlushed, "IBV_WC_REM_ACCESS_ERR": StatusRemoteKey,
		"IBV_WC_RETRY_EXC_ERR": StatusRetries, "IBV_WC_RNR_RETRY_EXC_ERR": StatusRNRRetries,
		"IBV_EVENT_DEVICE_FATAL": eventDeviceFatal, "IBV_EVENT_PORT_ACTIVE": eventPortActive, "IBV_EVENT_PORT_ERR": eventPortError,
	}
}

// functions are the addresses of the functions of libibverbs.
type functions struct {
	getDeviceList, freeDeviceList, getDeviceName, openDevice, closeDevice,
	queryDevice, queryPort, queryGIDEx,
	allocPD, deallocPD, regMR, deregMR,
	createCompChannel, destroyCompChannel, createCQ, destroyCQ, getCQEvent, ackCQEvents,
	createQP, modifyQP, destroyQP, wcStatusStr, getAsyncEvent, ackAsyncEvent uintptr
}

var (
	fn       functions
	errnoLoc uintptr // __errno_location of libc
)

// Library is the file name of libibverbs. Tests with a fake set it before the first use of this package.
var Library = "libibverbs.so.1"

// Load opens libibverbs once. Later calls return the result of the first one. The error names the missing library or function.
var Load = sync.OnceValue(func() error {
	lib, err := dl.Open(Library)
	if err != nil {
		return fmt.Errorf("verbs: %w (install libibverbs1 and ibverbs-providers, or the packages of the vendor)", err)
	}
	for name, at := range map[string]*uintptr{
		"ibv_get_device_list": &fn.getDeviceList, "ibv_free_device_list": &fn.freeDeviceList, "ibv_get_device_name": &fn.getDeviceName,
		"ibv_open_device": &fn.openDevice, "ibv_close_device": &fn.closeDevice, "ibv_query_device": &fn.queryDevice, "ibv_query_port": &fn.queryPort,
		"_ibv_query_gid_ex": &fn.queryGIDEx, "ibv_alloc_pd": &fn.allocPD, "ibv_dealloc_pd": &fn.deallocPD, "ibv_reg_mr": &fn.regMR,
		"ibv_dereg_mr": &fn.deregMR, "ibv_create_comp_channel": &fn.createCompChannel, "ibv_destroy_comp_channel": &fn.destroyCompChannel,
		"ibv_create_cq": &fn.createCQ, "ibv_destroy_cq": &fn.destroyCQ, "ibv_get_cq_event": &fn.getCQEvent, "ibv_ack_cq_events": &fn.ackCQEvents,
		"ibv_create_qp": &fn.createQP,
		"ibv_modify_qp": &fn.modifyQP, "ibv_destroy_qp": &fn.destroyQP, "ibv_wc_status_str": &fn.wcStatusStr, "ibv_get_async_event": &fn.getAsyncEvent, "ibv_ack_async_event": &fn.ackAsyncEvent,
	} {
		if *at, err = lib.Symbol(name); err != nil {
			return fmt.Errorf("verbs: %w (rdma-core 32 or later is needed)", err)
		}
	}
	libc, err := dl.Open("libc.so.6")
	if err == nil {
		errnoLoc, err = libc.Symbol("__errno_location")
	}
	if err != nil {
		return fmt.Errorf("verbs: %w", err)
	}
	return nil
})

// deref returns the value of C memory at an address.
func deref[T any](addr uintptr) *T { return *(**T)(unsafe.Pointer(&addr)) }

// call calls a function that returns an error number, or -1 and sets errno.
//
//go:uintptrescapes
func call(what string, f uintptr, args ...uintptr) error {
	r, errno := withErrno(f, args...)
	switch code := int32(r); {
	case code == 0:
		return nil
	case code > 0:
		errno = syscall.Errno(code)
	}
	return fmt.Errorf("verbs: %s: %w", what, errno)
}

// create calls a function that returns an object, or NULL and sets errno.
//
//go:uintptrescapes
func create(what string, f uintptr, args ...uintptr) (uintptr, error) {
	r, errno := withErrno(f, args...)
	if r != 0 {
		return r, nil
	}
	hint := ""
	if errno == syscall.ENOMEM {
		hint = "; the limit of locked memory (ulimit -l) may be too low"
	}
	return 0, fmt.Errorf("verbs: %s: %w%s", what, errno, hint)
}

// withErrno calls a function and reads the errno of its thread, which purego does not return without cgo.
//
//go:uintptrescapes
func withErrno(f uintptr, args ...uintptr) (uintptr, syscall.Errno) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	loc, _, _ := purego.SyscallN(errnoLoc)
	errno := deref[int32](loc)
	*errno = 0
	r, _, _ := purego.SyscallN(f, args...)
	return r, syscall.Errno(*errno)
}

// cString returns the Go string of a C string.
func cString(addr uintptr) string {
	if addr == 0 {
		return ""
	}
	var b strings.Builder
	for ; *deref[byte](addr) != 0; addr++ {
		b.WriteByte(*deref[byte](addr))
	}
	return b.String()
}

// Devices returns the names of the RDMA devices.
func Devices() (names []string, err error) {
	err = eachDevice(func(_ uintptr, name string) error {
		names = append(names, name)
		return nil
	})
	return names, err
}

func eachDevice(f func(device uintptr, name string) error) error {
	if err := Load(); err != nil {
		return err
	}
	n := new(int32)
	list, err := create("ibv_get_device_list", fn.getDeviceList, uintptr(unsafe.Pointer(n)))
	if err != nil {
		return fmt.Errorf("%w (the kernel module ib_uverbs may be missing)", err)
	}
	defer purego.SyscallN(fn.freeDeviceList, list)
	for i := range uintptr(*n) {
		d := *deref[uintptr](list + 8*i)
		name, _, _ := purego.SyscallN(fn.getDeviceName, d)
		if err := f(d, cString(name)); err != nil {
			return err
		}
	}
	return nil
}

// A Device is an open device.
type Device struct {
	Name string

	c    uintptr
	ops  *ibvContextOps
	attr ibvDeviceAttr
}

// ErrNoDevice reports that there is no RDMA device, or none with the requested name.
var ErrNoDevice = errors.New("verbs: no RDMA device")

// Open opens a device by its name.
func Open(name string) (*Device, error) {
	var found *Device
	var names []string
	err := eachDevice(func(d uintptr, n string) error {
		names = append(names, n)
		if n != name {
			return nil
		}
		c, err := create("ibv_open_device "+n, fn.openDevice, d)
		if err != nil {
			return err
		}
		found = &Device{Name: n, c: c, ops: &deref[ibvContext](c).ops}
		attr := new(ibvDeviceAttr)
		if err := call("ibv_query_device "+n, fn.queryDevice, c, uintptr(unsafe.Pointer(attr))); err != nil {
			found.Close()
			return err
		}
		found.attr = *attr
		return nil
	})
	if err != nil {
		return nil, err
	}
	if found == nil {
		return nil, fmt.Errorf("%w %q; there are: %s", ErrNoDevice, name, strings.Join(names, ", "))
	}
	return found, nil
}

// Close closes the device.
func (d *Device) Close() error { return call("ibv_close_device", fn.closeDevice, d.c) }

// Ports returns the number of ports. They are numbered from 1.
func (d *Device) Ports() int { return int(d.attr.ports) }

// MaxQueue returns the maximal number of work requests in a queue, and MaxCompletions that of completions.
func (d *Device) MaxQueue() int       { return int(d.attr.maxQPWR) }
func (d *Device) MaxCompletions() int { return int(d.attr.maxCQE) }

// Windows reports whether the device has memory windows of type 2.
func (d *Device) Windows() bool {
	return d.attr.capFlags&(capWindow2A|capWindow2B) != 0 && d.attr.maxMW > 0 && d.ops.allocMW != 0
}

// A Port is the state of a port.
type Port struct {
	Number    int
	Active    bool
	MTU       int // bytes of payload of a packet
	LID       uint16
	LinkLayer int
	gids      int
}

// Port returns the state of a port.
func (d *Device) Port(n int) (Port, error) {
	a := new(ibvPortAttr)
	if err := call(fmt.Sprintf("ibv_query_port %s/%d", d.Name, n), fn.queryPort, d.c, uintptr(n), uintptr(unsafe.Pointer(a))); err != nil {
		return Port{}, err
	}
	return Port{Number: n, Active: a.state == portActive, MTU: 128 << a.activeMTU, LID: a.lid, LinkLayer: int(a.linkLayer), gids: int(a.gidTableLen)}, nil
}

// A GID is an entry of the table of addresses of a port.
type GID struct {
	Index int
	Kind  int // GIDInfiniBand, GIDRoCEv1 or GIDRoCEv2
	GID   [16]byte
	// Interface is the index of the network interface, or 0.
	Interface int
}

// GIDs returns the addresses of a port.
func (d *Device) GIDs(p Port) (list []GID) {
	for i := range p.gids {
		e := new(ibvGIDEntry)
		r, _ := withErrno(fn.queryGIDEx, d.c, uintptr(p.Number), uintptr(i), uintptr(unsafe.Pointer(e)), 0, unsafe.Sizeof(*e))
		if int32(r) == 0 && e.gid != [16]byte{} {
			list = append(list, GID{Index: i, Kind: int(e.kind), GID: e.gid, Interface: int(e.netIfIndex)})
		}
	}
	return list
}

// A PD is a protection domain.
type PD struct {
	d *Device
	p uintptr
}

// NewPD makes a protection domain.
func (d *Device) NewPD() (*PD, error) {
	p, err := create("ibv_alloc_pd", fn.allocPD, d.c)
	if err != nil {
		return nil, err
	}
	return &PD{d, p}, nil
}

// Close frees the protection domain.
func (p *PD) Close() error { return call("ibv_dealloc_pd", fn.deallocPD, p.p) }

// An MR is registered memory.
type MR struct {
	m             uintptr
	Local, Remote uint32 // keys
}

// Register registers n bytes of memory for the accesses of the flags.
func (p *PD) Register(addr unsafe.Pointer, n, access int) (*MR, error) {
	m, err := create(fmt.Sprintf("ibv_reg_mr of %d bytes", n), fn.regMR, p.p, uintptr(addr), uintptr(n), uintptr(access))
	if err != nil {
		return nil, err
	}
	v := deref[ibvMR](m)
	return &MR{m, v.lkey, v.rkey}, nil
}

// Close deregisters the memory.
func (m *MR) Close() error { return call("ibv_dereg_mr", fn.deregMR, m.m) }

// A Window is a memory window of type 2. A binding makes it valid for one QP, until it is invalidated.
type Window struct {
	d *Device
	w uintptr
	// Key is the remote key of the next or current binding.
	Key uint32
	// Uses is the number of bindings so far. After 255 of them an old key would be valid again.
	Uses int
}

// NewWindow allocates a window.
func (p *PD) NewWindow() (*Window, error) {
	if !p.d.Windows() {
		return nil, fmt.Errorf("verbs: device %s has no memory windows of type 2", p.d.Name)
	}
	w, err := create("ibv_alloc_mw", p.d.ops.allocMW, p.p, windowType2)
	if err != nil {
		return nil, err
	}
	return &Window{d: p.d, w: w, Key: deref[ibvMW](w).rkey}, nil
}

// Close frees the window. A binding ends.
func (w *Window) Close() error { return call("ibv_dealloc_mw", w.d.ops.deallocMW, w.w) }

// StatusText returns the library's text for the status of a completion.
func StatusText(status uint32) string {
	s, _, _ := purego.SyscallN(fn.wcStatusStr, uintptr(status))
	return cString(s)
}
