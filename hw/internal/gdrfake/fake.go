//go:build linux

// Package gdrfake builds and controls a libibverbs in C with one device, for tests on machines without RDMA. It needs a C
// compiler. All queue pairs are in the process that loads it. It accesses memory of the driver of package cudafake as a
// network card does that of a GPU.
package gdrfake

import (
	_ "embed"
	"sync"
	"testing"

	"github.com/nexar-go/nexar/hw/internal/cudafake"
)

//go:embed c/verbs.c
var source []byte

// A Fake controls the library of this process.
type Fake struct {
	fail                         func()
	hold                         func(on int32)
	refuse                       func(dmaBuf, peer int32)
	held, registered, live       func() int32
	deviceRead, written, strayed func() uint64
}

// load builds and opens the library at the first call. Its name is that of libibverbs, so that the dynamic linker finds it
// when package verbs opens that.
var load = sync.OnceValues(func() (*Fake, error) {
	f := new(Fake)
	_, err := cudafake.BuildAndOpen("verbs", source, map[string]any{
		"fakeverbs_break": &f.fail, "fakeverbs_hold": &f.hold, "fakeverbs_refuse": &f.refuse, "fakeverbs_held": &f.held,
		"fakeverbs_registered": &f.registered, "fakeverbs_live": &f.live, "fakeverbs_device_read": &f.deviceRead,
		"fakeverbs_device_written": &f.written, "fakeverbs_strays": &f.strayed,
	}, "-Wl,-soname,libibverbs.so.1")
	return f, err
})

// New returns the library of this process, which must not have opened libibverbs before. Without a C compiler it skips the
// test, or fails it if NEXAR_REQUIRE lists "cc".
func New(tb testing.TB) *Fake {
	tb.Helper()
	cudafake.New(tb)
	f, err := load()
	if err != nil {
		tb.Fatalf("the fake of libibverbs cannot be built: %v", err)
	}
	return f
}

// Hold lets remote writes, and later requests of their queue pairs, wait until it is called with false.
func (f *Fake) Hold(on bool) { f.hold(number(on)) }

// Held returns the number of queue pairs with a remote write that waits.
func (f *Fake) Held() int { return int(f.held()) }

// Break fails all queue pairs.
func (f *Fake) Break() { f.fail() }

// Refuse lets registrations of memory of devices fail.
func (f *Fake) Refuse(dmaBuf, peer bool) { f.refuse(number(dmaBuf), number(peer)) }

func number(on bool) int32 {
	if on {
		return 1
	}
	return 0
}

// Registered returns the number of registrations of memory of devices.
func (f *Fake) Registered() int { return int(f.registered()) }

// Live returns the number of registrations and memory windows.
func (f *Fake) Live() int { return int(f.live()) }

// Read and Written return the bytes of memory of devices that the network card has read and written so far.
func (f *Fake) Read() uint64    { return f.deviceRead() }
func (f *Fake) Written() uint64 { return f.written() }

// Strays returns the number of accesses to memory of devices that was freed.
func (f *Fake) Strays() uint64 { return f.strayed() }
