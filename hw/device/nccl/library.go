package nccl

import (
	"cmp"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/internal/cudadriver"
	"github.com/nexar-go/nexar/hw/internal/dl"
)

// LibraryName is the file name of NCCL for the dynamic linker.
const LibraryName = "libnccl.so.2"

// oldest is the first version with communicators that do not block the thread that creates them.
const oldest = 21400

// A library is NCCL.
type library struct {
	lib     *dl.Library
	version int
	addr    map[string]uintptr
}

// since has the first version with each function.
var since = map[string]string{
	"ncclGetVersion": "2.3", "ncclGetUniqueId": "2.0", "ncclGetErrorString": "2.0", "ncclGetLastError": "2.13", "ncclCommInitRankConfig": "2.14",
	"ncclCommInitRankScalable": "2.23", "ncclCommGetAsyncError": "2.4", "ncclCommAbort": "2.4", "ncclCommDestroy": "2.0",
	"ncclReduceScatter": "2.0", "ncclAllGather": "2.0", "ncclBroadcast": "2.2", "ncclReduce": "2.0", "ncclSend": "2.7", "ncclRecv": "2.7",
	"ncclGroupStart": "2.0", "ncclGroupEnd": "2.0",
}

// optional reports whether callers do without the function where the library lacks it.
func optional(f string) bool { return f == "ncclCommInitRankScalable" || f == "ncclGetLastError" }

// open opens a library. The dynamic linker loads it once for the process, and it stays open.
func open(name string) (*library, error) {
	lib, err := dl.Open(name)
	if err != nil {
		return nil, fmt.Errorf("NCCL is not installed: %w", err)
	}
	l := &library{lib: lib, addr: make(map[string]uintptr)}
	for f := range since {
		if addr, err := lib.Symbol(f); err == nil {
			l.addr[f] = addr
		}
	}
	if l.addr["ncclGetVersion"] != 0 {
		v := new(int32)
		if err := l.call("ncclGetVersion", 0, uintptr(unsafe.Pointer(v))); err != nil {
			return nil, err
		}
		l.version = int(*v)
	}
	for _, f := range slices.Sorted(maps.Keys(since)) {
		if l.addr[f] == 0 && !optional(f) {
			return nil, fmt.Errorf("%s of version %s has no %s: NCCL %s and later have it; install NCCL 2.14 or later", name, versionText(l.version), f, since[f])
		}
	}
	if l.version < oldest {
		return nil, fmt.Errorf("%s has the version %s: install NCCL 2.14 or later", name, versionText(l.version))
	}
	return l, nil
}

// Version returns the version of NCCL, such as "2.23.4". Library is as in [Config]. The error says that NCCL is
// missing or too old.
func Version(library string) (string, error) {
	l, err := open(cmp.Or(library, LibraryName))
	if err != nil {
		return "", fmt.Errorf("nccl: %w", err)
	}
	return versionText(l.version), nil
}

// versionText returns "2.23.4" for 22304.
func versionText(v int) string {
	if v == 0 {
		return "unknown"
	}
	if v < 10000 {
		return fmt.Sprintf("%d.%d.%d", v/1000, v/100%10, v%100)
	}
	return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100)
}

// An Error is the result of a call of NCCL that failed.
type Error struct {
	Call string // the function, such as ncclReduceScatter
	Code int32  // ncclResult_t
	Text string // the message of the code
	Last string // the last message of NCCL, which may be of an earlier call
}

func (e *Error) Error() string {
	last := ""
	if e.Last != "" {
		last = ": " + e.Last
	}
	return fmt.Sprintf("%s: %s (%d)%s", e.Call, e.Text, e.Code, last)
}

// Results of NCCL (ncclResult_t).
const (
	systemError   = 2
	internalError = 3
	remoteError   = 6
	inProgress    = 7 // the call continues: see ncclCommGetAsyncError
)

// call calls a function. comm may be 0. A call that continues is no error.
//
//go:uintptrescapes
func (l *library) call(name string, comm uintptr, args ...uintptr) error {
	r, _, _ := purego.SyscallN(l.addr[name], args...)
	code := int32(r)
	if code == 0 || code == inProgress {
		return nil
	}
	return l.errorOf(name, code, comm)
}

func (l *library) errorOf(name string, code int32, comm uintptr) *Error {
	e := &Error{Call: name, Code: code}
	if f := l.addr["ncclGetErrorString"]; f != 0 {
		p, _, _ := purego.SyscallN(f, uintptr(code))
		e.Text = cudadriver.String(p)
	}
	if f := l.addr["ncclGetLastError"]; f != 0 {
		p, _, _ := purego.SyscallN(f, comm)
		e.Last = cudadriver.String(p)
	}
	return e
}

// A uniqueID names a communicator that is being created.
type uniqueID [128]byte

// newID returns the id of a new communicator.
func (l *library) newID() (uniqueID, error) {
	id := new(uniqueID)
	err := l.call("ncclGetUniqueId", 0, uintptr(unsafe.Pointer(id)))
	return *id, err
}

// A config is the beginning of ncclConfig_t, in the layout of NCCL 2.14, which later versions accept by
// its size and version.
type config struct {
	size     uintptr
	magic    uint32
	version  uint32
	blocking int32
}

const magic = 0xcafebeef // of a config

// A creation is the memory that NCCL uses to create a communicator. NCCL writes comm before the call returns, and once
// more on a thread of its own when the creation ends: keep the creation until asyncError reports its end, or until
// the communicator is aborted.
type creation struct {
	comm uintptr // the communicator
	id   uniqueID
	cfg  config
}

// create begins to create a communicator. The creation continues until asyncError is nil.
//
// The conversions to uintptr are in the call expressions: only there do they move the memory to the heap. C needs that, since Go moves
// stacks.
func (l *library) create(n, rank int, id uniqueID) (*creation, error) {
	c := &creation{id: id, cfg: config{size: unsafe.Sizeof(config{}), magic: magic, version: oldest}}
	call := "ncclCommInitRankConfig"
	var err error
	switch {
	case l.addr["ncclCommInitRankScalable"] != 0: // from 2.23 on
		call = "ncclCommInitRankScalable"
		err = l.call(call, 0, uintptr(unsafe.Pointer(&c.comm)), uintptr(n), uintptr(rank), 1, uintptr(unsafe.Pointer(&c.id)), uintptr(unsafe.Pointer(&c.cfg)))
	case runtime.GOARCH == "amd64":
		// The id is passed by value: on the stack, behind the six registers for integers.
		w := (*[16]uintptr)(unsafe.Pointer(&c.id))
		err = l.call(call, 0, uintptr(unsafe.Pointer(&c.comm)), uintptr(n), uintptr(rank), uintptr(unsafe.Pointer(&c.cfg)), 0, 0,
			w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13], w[14], w[15])
	default:
		// On arm64 the caller passes the address of a copy.
		err = l.call(call, 0, uintptr(unsafe.Pointer(&c.comm)), uintptr(n), uintptr(unsafe.Pointer(&c.id)), uintptr(rank), uintptr(unsafe.Pointer(&c.cfg)))
	}
	if err == nil && c.comm == 0 {
		err = fmt.Errorf("%s reported success without a communicator: install another version of NCCL than %s", call, versionText(l.version))
	}
	return c, err
}

// asyncError reports whether a call continues, and the error of one that has failed in the background.
func (l *library) asyncError(comm uintptr) (busy bool, err error) {
	state := new(int32)
	if err := l.call("ncclCommGetAsyncError", comm, comm, uintptr(unsafe.Pointer(state))); err != nil {
		return false, err
	}
	switch *state {
	case 0:
		return false, nil
	case inProgress:
		return true, nil
	}
	return false, l.errorOf("an operation", *state, comm)
}

// types maps types of elements to ncclDataType_t. NCCL 2.24 and later also reduce 8-bit floats, on GPUs since sm_90: they are not
// here, and are reduced as those of other types that NCCL lacks.
var types = map[device.Type]uintptr{
	device.Int8: 0, device.Uint8: 1, device.Int32: 2, device.Uint32: 3, device.Int64: 4, device.Uint64: 5,
	device.Float16: 6, device.Float32: 7, device.Float64: 8, device.BFloat16: 9,
}

// ops maps operations to ncclRedOp_t.
var ops = map[device.Op]uintptr{device.Sum: 0, device.Prod: 1, device.Max: 2, device.Min: 3}
