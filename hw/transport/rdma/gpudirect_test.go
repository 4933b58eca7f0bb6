//go:build linux

package rdma

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/nexar-go/nexar/hw/internal/verbs"
	"github.com/nexar-go/nexar/transport"
)

// A fakeRegistrar is a protection domain that supports some methods.
type fakeRegistrar struct {
	dmaBuf, peer bool
	t            *testing.T
	contents     string // of the dma-buf, at the offset
}

func (f *fakeRegistrar) RegisterDMABuf(fd int, offset, addr uintptr, n, _ int) (*verbs.MR, error) {
	if !f.dmaBuf {
		return nil, errors.New("ibv_reg_dmabuf_mr: not supported")
	}
	got := make([]byte, len(f.contents))
	if _, err := syscall.Pread(fd, got, int64(offset)); err != nil || string(got) != f.contents {
		f.t.Errorf("the dma-buf has %q (%v) at the offset, want %q", got, err, f.contents)
	}
	return &verbs.MR{Local: 1}, nil
}

func (f *fakeRegistrar) RegisterAddress(addr uintptr, n, _ int) (*verbs.MR, error) {
	if !f.peer {
		return nil, errors.New("ibv_reg_mr: bad address")
	}
	return &verbs.MR{Local: 2}, nil
}

// TestExpose: the method for memory of a GPU is the first that works, and registrations of a Conn use it.
func TestExpose(t *testing.T) {
	const contents, offset = "memory of a GPU", 7
	gpu, err := syscall.Mmap(-1, 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE) // A stack can move.
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Munmap(gpu)
	address := uintptr(unsafe.Pointer(&gpu[0]))
	path := t.TempDir() + "/dma-buf"
	if err := os.WriteFile(path, []byte(strings.Repeat("-", offset)+contents), 0o600); err != nil {
		t.Fatal(err)
	}
	share := func() (int, int64, error) {
		f, err := os.Open(path)
		if err != nil {
			return -1, 0, err
		}
		defer f.Close()
		fd, err := dup(f)
		return fd, offset, err
	}
	fails := func() (int, int64, error) { return -1, 0, errors.New("cuMemGetHandleForAddressRange: not supported") }
	for _, test := range []struct {
		by     fakeRegistrar
		dmaBuf func() (int, int64, error)
		method string
		want   []string // parts of the error
	}{
		{fakeRegistrar{dmaBuf: true, peer: true}, share, MethodDMABuf, nil},
		{fakeRegistrar{peer: true}, share, MethodPeerMemory, nil},
		{fakeRegistrar{dmaBuf: true, peer: true}, fails, MethodPeerMemory, nil},
		{fakeRegistrar{dmaBuf: true, peer: true}, nil, MethodPeerMemory, nil},
		{fakeRegistrar{}, share, "", []string{"dma-buf: ibv_reg_dmabuf_mr: not supported", "peer memory: ibv_reg_mr: bad address", "nvidia_peermem"}},
		{fakeRegistrar{}, fails, "", []string{"dma-buf: cuMemGetHandleForAddressRange: not supported"}},
	} {
		test.by.t, test.by.contents = t, contents
		dev := &device{cache: make(map[*transport.Mapping]*cached)}
		before := openFiles(t)
		x, err := expose(dev, &test.by, DeviceMemory{Address: address, Bytes: len(gpu), DMABuf: test.dmaBuf})
		if after := openFiles(t); after != before {
			t.Errorf("%d open files, and %d before", after, before)
		}
		if test.method == "" {
			if !errors.Is(err, ErrStaging) {
				t.Errorf("%v, want ErrStaging", err)
			}
			for _, part := range test.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v, want %q in it", err, part)
				}
			}
			continue
		}
		if err != nil || x.Method != test.method || &x.Memory[0] != &gpu[0] || len(x.Memory) != len(gpu) {
			t.Fatalf("method %q, error %v, want %q", x.Method, err, test.method)
		}
		if !isMapped(x.Memory[100:200]) || exposures.find(dev, x.Memory[4000:]) != x.e || exposures.find(&device{}, x.Memory) != nil {
			t.Error("a part of exposed memory is not found, or is found for another device")
		}
		r, err := dev.register(x.Memory[100:200])
		if err != nil || r.mr != x.e.c.mr {
			t.Fatalf("the registration of a part is %v (%v), want that of the whole", r, err)
		}
		if err := x.Close(); err != nil || !x.e.c.gone || x.e.c.uses != 1 {
			t.Errorf("Close: %v; uses %d, gone %v; want the registration to stay for its use", err, x.e.c.uses, x.e.c.gone)
		}
		if err := x.Close(); !errors.Is(err, transport.ErrClosed) {
			t.Errorf("second Close: %v, want ErrClosed", err)
		}
		if isMapped(x.Memory) {
			t.Error("memory is exposed after Close")
		}
	}
	if _, err := expose(&device{}, &fakeRegistrar{peer: true}, DeviceMemory{Address: address}); err == nil {
		t.Error("memory of 0 bytes is exposed")
	}
}

// dup returns a copy of the descriptor of a file.
func dup(f *os.File) (int, error) { return syscall.Dup(int(f.Fd())) }

// openFiles returns the number of open files of the process.
func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
