// Package cudafake builds and controls a CUDA driver in C that works on memory of the host, for tests on
// machines without a GPU. It needs a C compiler.
//
// A process has one such driver. Kernels are run by the interpreter of package ptx.
package cudafake

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/nexar-go/nexar/hw/internal/cudadriver"
	"github.com/nexar-go/nexar/hw/internal/dl"
	"github.com/nexar-go/nexar/hw/internal/ptx"
	"github.com/nexar-go/nexar/internal/require"
)

//go:embed c/cuda.c
var source []byte

//go:embed c/nccl.c
var ncclSource []byte

// PathVariable names the environment variable with the path of the library that a process has built,
// for processes that it starts.
const PathVariable = "FAKECUDA_LIBRARY"

// NCCLVariable is PathVariable for the fake of NCCL.
const NCCLVariable = "FAKENCCL_LIBRARY"

// NCCL returns the path of a library with the interface of NCCL, which is built at the first call. It works
// on memory of the fake driver.
func NCCL(tb testing.TB) string {
	tb.Helper()
	path, err := New(tb).nccl()
	need(tb, "the fake of NCCL", err)
	return path
}

// buildNCCL returns the path of the library for [NCCL].
func buildNCCL() (string, error) {
	if path := os.Getenv(NCCLVariable); path != "" {
		return path, nil
	}
	return Build("nccl", ncclSource)
}

// OldNCCL is NCCL for a version before 2.23, which passes ids by value.
func OldNCCL(tb testing.TB) string { return NCCLWith(tb, "-DNO_SCALABLE") }

// NCCLWith is NCCL, built with flags of the compiler.
func NCCLWith(tb testing.TB, flags ...string) string {
	tb.Helper()
	New(tb)
	path, err := Build("nccl", ncclSource, flags...)
	need(tb, "the fake of NCCL", err)
	return path
}

// A FakeNCCL controls a library of [NCCL] in this process.
type FakeNCCL struct {
	groups, remoteErrors func() int32
	cut                  func()
}

// ControlNCCL opens a library of [NCCL], by its path.
func ControlNCCL(tb testing.TB, path string) *FakeNCCL {
	tb.Helper()
	f := new(FakeNCCL)
	if err := open(path, map[string]any{"fakenccl_groups": &f.groups, "fakenccl_remote_errors": &f.remoteErrors, "fakenccl_cut": &f.cut}); err != nil {
		tb.Fatal(err)
	}
	return f
}

// Groups returns the number of group calls that have ended: of ncclGroupEnd that are not within another group.
func (f *FakeNCCL) Groups() int { return int(f.groups()) }

// Cut gives all communicators of this process the asynchronous error of a failed connection.
func (f *FakeNCCL) Cut() { f.cut() }

// RemoteErrors returns the number of calls of ncclCommGetAsyncError that have returned the error of a failed connection.
func (f *FakeNCCL) RemoteErrors() int { return int(f.remoteErrors()) }

// A Fake controls the driver of this process.
type Fake struct {
	Path string // of the library

	nccl     func() (path string, err error) // builds the fake of NCCL at the first call
	programs sync.Map                        // of type *ptx.Program, by their text

	configure func(devices int32, bytes uintptr)
	fail      func(name string, nth, code int32)
	hang      func(name string, on int32)
	calls     func(name string) int32
	hold      func(stream uintptr, on int32)
	fault     func(device int32)
	direct    func(on int32)
	pageable  func() int32
	live      func() int32
	find      func(addr uintptr, bytes *uintptr) uintptr
}

// Load returns the driver of this process, which is built and opened at the first call: see also [New].
var Load = sync.OnceValues(func() (*Fake, error) {
	path := os.Getenv(PathVariable)
	if path == "" {
		var err error
		if path, err = Build("cuda", source); err != nil {
			return nil, err
		}
	}
	f := &Fake{Path: path, nccl: sync.OnceValues(buildNCCL)}
	var setRunner func(uintptr)
	err := open(path, map[string]any{
		"fakecuda_configure": &f.configure, "fakecuda_fail": &f.fail, "fakecuda_hang": &f.hang, "fakecuda_calls": &f.calls,
		"fakecuda_hold": &f.hold, "fakecuda_fault": &f.fault, "fakecuda_pageable": &f.pageable, "fakecuda_live": &f.live,
		"fakecuda_find": &f.find, "fakecuda_direct": &f.direct, "fakecuda_set_runner": &setRunner,
	})
	if err != nil {
		return nil, err
	}
	setRunner(purego.NewCallback(f.run))
	return f, nil
})

var errNoCompiler = errors.New("there is no C compiler: set CC, or install gcc")

// need fails a test if a fake cannot be built. Without a C compiler it skips the test.
func need(tb testing.TB, what string, err error) {
	tb.Helper()
	require.Have(tb, "cc", !errors.Is(err, errNoCompiler), errNoCompiler.Error())
	if err != nil {
		tb.Fatalf("%s cannot be built: %v", what, err)
	}
}

// Build compiles a library from a file of C, and returns its path. The path is valid until the end of this process, also for other
// processes. On Linux no file remains after that.
func Build(name string, source []byte, flags ...string) (path string, err error) {
	return build(name, flags, func(dir string) error { return os.WriteFile(filepath.Join(dir, name+".c"), source, 0o600) })
}

// BuildAndOpen is Build for a library of several files, which this process opens. It sets the functions, pointers by name, to
// those of the library.
func BuildAndOpen(name string, source fs.FS, functions map[string]any, flags ...string) (path string, err error) {
	if path, err = build(name, flags, func(dir string) error { return os.CopyFS(dir, source) }); err != nil {
		return "", err
	}
	return path, open(path, functions)
}

// build compiles the files of C that add writes to a folder. On Linux it removes the folder. The path of the library is that of an open file.
func build(name string, flags []string, add func(dir string) error) (path string, err error) {
	compiler := ""
	for _, c := range []string{os.Getenv("CC"), "cc", "gcc", "clang"} {
		if p, err := exec.LookPath(c); err == nil {
			compiler = p
			break
		}
	}
	if compiler == "" {
		return "", errNoCompiler
	}
	dir, err := os.MkdirTemp("", "nexar-fake-")
	if err != nil {
		return "", err
	}
	const byFile = runtime.GOOS == "linux" // there a path can name an open file
	if byFile {
		defer os.RemoveAll(dir)
	}
	if err := add(dir); err != nil {
		return "", err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.c"))
	if err != nil {
		return "", err
	}
	path = filepath.Join(dir, "libfake"+name+".so")
	args := slices.Concat([]string{"-O1", "-g", "-fPIC", "-shared", "-o", path}, files, []string{"-lpthread"}, flags)
	if text, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", compiler, err, text)
	}
	if !byFile {
		return path, nil
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return "", &fs.PathError{Op: "open", Path: path, Err: err}
	}
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd), nil
}

// open opens a library, and sets functions to those of the library. The fake of NCCL uses the symbols of that of the driver.
func open(path string, functions map[string]any) error {
	lib, err := dl.OpenGlobal(path)
	if err != nil {
		return err
	}
	for name, fn := range functions {
		if err := lib.Func(fn, name); err != nil {
			return err
		}
	}
	return nil
}

// New returns the driver of this process, which is built at the first call. Without a C compiler it
// skips the test, or fails it if NEXAR_REQUIRE lists "cc".
func New(tb testing.TB) *Fake {
	tb.Helper()
	f, err := Load()
	need(tb, "the fake CUDA driver", err)
	return f
}

// Configure sets the number of devices and the memory of each, before the first use.
func (f *Fake) Configure(devices int, bytes int) { f.configure(int32(devices), uintptr(bytes)) }

// Fail lets the n-th call of a function from now on return a code; 1 is the next one.
func (f *Fake) Fail(name string, n int, code int32) { f.fail(name, int32(n), code) }

// Hang lets calls of a function not return until release is called.
func (f *Fake) Hang(name string) (release func()) {
	f.hang(name, 1)
	return sync.OnceFunc(func() { f.hang(name, 0) })
}

// Calls returns the number of calls of a function.
func (f *Fake) Calls(name string) int { return int(f.calls(name)) }

// Hold stops a stream, or lets it continue.
func (f *Fake) Hold(s cudadriver.Stream, on bool) {
	var n int32
	if on {
		n = 1
	}
	f.hold(uintptr(s), n)
}

// Fault lets the next copy or kernel of a device access memory that it may not access.
func (f *Fake) Fault(device int) { f.fault(int32(device)) }

// Direct says whether network cards access the memory of devices that are opened from now on.
func (f *Fake) Direct(on bool) {
	var n int32
	if on {
		n = 1
	}
	f.direct(n)
}

// Pageable returns the number of copies with memory of the host that the driver had not allocated.
func (f *Fake) Pageable() int { return int(f.pageable()) }

// Live returns the number of allocations, streams, events and contexts.
func (f *Fake) Live() int { return int(f.live()) }

// run runs a kernel. It returns 1 for a fault.
func (f *Fake) run(text, entry, args *byte, gridX, gridY, block uintptr) uintptr {
	mem := func(addr uint64) (base uint64, data []byte) {
		var n uintptr
		p := f.find(uintptr(addr), &n)
		if p == 0 {
			return 0, nil
		}
		return uint64(p) | deviceBit, cudadriver.Memory(p, int(n))
	}
	p, err := f.parsed(cudadriver.String(uintptr(unsafe.Pointer(text))))
	if err == nil {
		err = p.Run(cudadriver.String(uintptr(unsafe.Pointer(entry))), unsafe.Slice((*uint64)(unsafe.Pointer(args)), 16),
			ptx.Grid{X: int(gridX), Y: int(gridY), Block: int(block)}, mem)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cudafake:", err)
		return 1
	}
	return 0
}

// deviceBit is set in addresses of devices.
const deviceBit = 1 << 60

// parsed returns a program. A text is parsed once.
func (f *Fake) parsed(text string) (*ptx.Program, error) {
	if p, ok := f.programs.Load(text); ok {
		return p.(*ptx.Program), nil
	}
	p, err := ptx.Parse(text)
	if err == nil {
		f.programs.Store(text, p)
	}
	return p, err
}
