package cuda_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/device/host"
	"github.com/nexar-go/nexar/hw/device/cuda"
)

// TestAccess: a GPU reads and writes memory of another one of the process, which remains until both buffers are freed.
func TestAccess(t *testing.T) {
	a, _ := open(t, 0, cuda.Config{Memory: 1 << 20})
	b, _ := open(t, 1, cuda.Config{})
	data := pattern(1 << 20)
	theirs := filled(t, a, data)
	ours, err := b.Access(theirs)
	must(t, err)
	if got := contents(t, b, ours); !bytes.Equal(got, data) {
		t.Error("the GPU reads other bytes than those of the buffer")
	}
	must(t, theirs.Free())
	must(t, b.CopyIn(t.Context(), device.Region{Buffer: ours, Bytes: 4}, []byte("abcd")))
	copy(data, "abcd")
	if got := contents(t, b, ours); !bytes.Equal(got, data) {
		t.Error("the memory has changed after the first Free")
	}
	if _, err := b.Access(theirs); !errors.Is(err, device.ErrFreed) {
		t.Errorf("access to a freed buffer: %v, want ErrFreed", err)
	}
	must(t, ours.Free())
	again, err := a.Alloc(t.Context(), 1<<20) // waits until the memory is free
	must(t, err)
	must(t, again.Free())
	if _, err := b.Access(host.Of(data)); err == nil || !strings.Contains(err.Error(), "not of a GPU") {
		t.Errorf("access to memory of the host: %v", err)
	}
}
