// Package cudadriver calls the CUDA driver (libcuda.so.1), which it opens at run time, without cgo.
//
// A method has the name of the function of the driver without the prefix cu, and uses the version of
// the function that the current header maps the name to. An error is an [*Error]. Except for those of
// the Driver that name no context, functions apply to the context that is current on the calling
// thread: callers lock their goroutine to its thread ([runtime.LockOSThread]) and call CtxSetCurrent.
//
// Memory of Go is passed for the duration of a call only.
package cudadriver

import (
	"fmt"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/nexar-go/nexar/hw/internal/dl"
)

// LibraryName is the file name of the driver for the dynamic linker.
const LibraryName = "libcuda.so.1"

// Handles of the driver. Their values have no meaning in Go.
type (
	// Device is the number of a device for the driver, which is not always its ordinal.
	Device int32
	// Context is the state of a process on a device.
	Context uintptr
	// Stream is a queue of work. The zero value is the default stream of the context.
	Stream uintptr
	// Event marks a position in a stream.
	Event uintptr
	// Module is loaded code.
	Module uintptr
	// Function is a kernel of a Module.
	Function uintptr
	// Ptr is an address in the memory of a device, or 0.
	Ptr uintptr
)

// A Driver is the open library of the driver.
type Driver struct {
	lib  *dl.Library
	addr [callCount]uintptr
}

// Open opens the first library of names that the dynamic linker finds, and LibraryName without names.
// The error names the functions that the library lacks.
func Open(names ...string) (*Driver, error) {
	if len(names) == 0 {
		names = []string{LibraryName}
	}
	lib, err := dl.Open(names...)
	if err != nil {
		return nil, fmt.Errorf("the CUDA driver is not installed: %w", err)
	}
	d := &Driver{lib: lib}
	for c := range callCount {
		addr, err := lib.Symbol(callNames[c])
		if err != nil && !c.optional() {
			return nil, fmt.Errorf("the CUDA driver is too old: %w (CUDA 11.0 and later have it)", err)
		}
		d.addr[c] = addr
	}
	return d, nil
}

// Name returns the file name of the library.
func (d *Driver) Name() string { return d.lib.Name }

// An Error is the result of a call of the driver that failed.
type Error struct {
	Call string // the function, such as cuMemAlloc_v2
	Code int32  // CUresult
	Name string // such as CUDA_ERROR_OUT_OF_MEMORY
	Text string // the message of the driver
	Log  string // of the compiler of the driver, for ModuleLoad
}

func (e *Error) Error() string {
	log := ""
	if e.Log != "" {
		log = "\n" + e.Log
	}
	return fmt.Sprintf("%s: %s (%d): %s%s", e.Call, e.Name, e.Code, e.Text, log)
}

// Results of the driver that callers distinguish.
const (
	ErrorOutOfMemory        = 2
	ErrorNoDevice           = 100
	ErrorInvalidContext     = 201
	ErrorPeerAlreadyEnabled = 704
	notReady                = 600
)

// call calls a function and makes an error of its result.
//
//go:uintptrescapes
func (d *Driver) call(c call, args ...uintptr) error {
	if code := d.result(c, args...); code != 0 {
		return d.errorOf(c, code)
	}
	return nil
}

// result calls a function. It returns its result, an enumeration.
//
//go:uintptrescapes
func (d *Driver) result(c call, args ...uintptr) int32 {
	if d.addr[c] == 0 {
		return 801 // CUDA_ERROR_NOT_SUPPORTED
	}
	r, _, _ := purego.SyscallN(d.addr[c], args...)
	return int32(r)
}

func (d *Driver) errorOf(c call, code int32) *Error {
	e := &Error{Call: callNames[c], Code: code, Name: "unknown error"}
	var p uintptr
	if d.result(callGetErrorName, uintptr(code), uintptr(unsafe.Pointer(&p))) == 0 {
		e.Name = String(p)
	}
	if p = 0; d.result(callGetErrorString, uintptr(code), uintptr(unsafe.Pointer(&p))) == 0 {
		e.Text = String(p)
	}
	return e
}

// String returns a copy of a C string.
func String(addr uintptr) string {
	if addr == 0 {
		return ""
	}
	p := pointer(addr)
	n := 0
	for *(*byte)(unsafe.Add(p, n)) != 0 {
		n++
	}
	return string(unsafe.Slice((*byte)(p), n))
}

// Memory returns memory of C as a slice.
func Memory(addr uintptr, n int) []byte { return unsafe.Slice((*byte)(pointer(addr)), n) }

// pointer is a conversion that go vet cannot check: addr is memory that Go does not manage.
func pointer(addr uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&addr)) }
