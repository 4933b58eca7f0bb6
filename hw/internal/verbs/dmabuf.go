package verbs

import (
	"fmt"
	"sync"

	"github.com/nexar-go/nexar/hw/internal/dl"
)

// regDMABuf returns the address of ibv_reg_dmabuf_mr.
var regDMABuf = sync.OnceValues(func() (uintptr, error) {
	if err := Load(); err != nil {
		return 0, err
	}
	lib, err := dl.Open(Library)
	if err != nil {
		return 0, err
	}
	f, err := lib.Symbol("ibv_reg_dmabuf_mr")
	if err != nil {
		return 0, fmt.Errorf("verbs: %w (rdma-core 34 and later have it)", err)
	}
	return f, nil
})

// RegisterDMABuf registers n bytes of the memory of a dma-buf, from an offset on. Remote keys and work requests
// name it by addresses from addr on. The file descriptor may be closed afterwards.
func (p *PD) RegisterDMABuf(fd int, offset, addr uintptr, n, access int) (*MR, error) {
	f, err := regDMABuf()
	if err != nil {
		return nil, err
	}
	return p.registered(create(fmt.Sprintf("ibv_reg_dmabuf_mr of %d bytes", n), f, p.p, offset, uintptr(n), addr, uintptr(fd), uintptr(access)))
}

// RegisterAddress is Register for an address that is not of this process, such as one of a GPU. The kernel accepts
// it if the driver of the GPU offers its memory (nvidia_peermem).
func (p *PD) RegisterAddress(addr uintptr, n, access int) (*MR, error) {
	if err := Load(); err != nil {
		return nil, err
	}
	return p.registered(create(fmt.Sprintf("ibv_reg_mr of %d bytes at %#x", n, addr), fn.regMR, p.p, addr, uintptr(n), uintptr(access)))
}

// registered returns an MR of C.
func (p *PD) registered(m uintptr, err error) (*MR, error) {
	if err != nil {
		return nil, err
	}
	v := deref[ibvMR](m)
	return &MR{m, v.lkey, v.rkey}, nil
}
