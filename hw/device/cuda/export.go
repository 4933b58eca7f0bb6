package cuda

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"weak"

	"github.com/nexar-go/nexar/device"
)

var _ device.Peer = (*Device)(nil)

// An export is the content of a name of Export: it is encoded as it is, with the reason behind it.
type export struct {
	Magic   [8]byte
	Process [16]byte
	Number  uint64 // of the buffer in its process
	Shared  Shared // not valid if there is a reason why other processes cannot access the memory
	Reason  uint8  // its length
}

const (
	exportMagic = "nexarGPU"
	reasonMax   = 120
)

// exportedBuffers are the exported buffers of this process, which its devices access by their addresses. They do not keep
// the buffers.
type exportedBuffers struct {
	process func() [16]byte // names the process among those of the host

	mu   sync.Mutex
	last uint64
	all  map[uint64]weak.Pointer[buffer]
}

var exports = exportedBuffers{
	process: sync.OnceValue(func() (id [16]byte) { _, _ = rand.Read(id[:]); return id }),
	all:     make(map[uint64]weak.Pointer[buffer]),
}

func (x *exportedBuffers) add(b *buffer) (number uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last++
	x.all[x.last] = weak.Make(b)
	runtime.AddCleanup(b, x.remove, x.last)
	return x.last
}

func (x *exportedBuffers) remove(number uint64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.all, number)
}

// find returns a buffer of this process, or nil.
func (x *exportedBuffers) find(number uint64) *buffer {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.all[number].Value()
}

// Export implements [device.Peer].
func (d *Device) Export(b device.Buffer) (name []byte, err error) {
	own, ok := b.(*buffer)
	switch {
	case !ok || own.d != d:
		return nil, &device.ForeignError{Device: d.name, Owner: b.Device().Name(), What: "buffer"}
	case own.bytes == 0:
		return nil, &device.LengthError{Device: d.name, What: "buffer", Unit: "bytes", Want: -1}
	}
	if _, err := Pointer(b); err != nil {
		return nil, err
	}
	x := export{Magic: [8]byte([]byte(exportMagic)), Process: exports.process(), Number: exports.add(own)}
	reason := ""
	if x.Shared, err = Share(b); err != nil {
		reason = err.Error()
		reason = reason[:min(len(reason), reasonMax)]
		x.Reason = uint8(len(reason))
	}
	name, err = binary.Append(nil, binary.NativeEndian, x)
	return append(name, reason...), err
}

// Attach implements [device.Peer]: within the process by [Device.Access], and otherwise by [Device.Import].
func (d *Device) Attach(name []byte) (device.Buffer, error) {
	var x export
	n, err := binary.Decode(name, binary.NativeEndian, &x)
	if err != nil || string(x.Magic[:]) != exportMagic || len(name) != n+int(x.Reason) {
		return nil, d.named(fmt.Errorf("a name of %d bytes is not one of Export of a GPU", len(name)))
	}
	if x.Process == exports.process() {
		b := exports.find(x.Number)
		if b == nil {
			return nil, d.named(fmt.Errorf("the memory with the number %d: %w", x.Number, device.ErrFreed))
		}
		return d.Access(b)
	}
	if x.Reason > 0 {
		return nil, d.named(fmt.Errorf("the other process cannot share its memory: %w", errors.New(string(bytes.ToValidUTF8(name[n:], nil)))))
	}
	return d.Import(x.Shared)
}
