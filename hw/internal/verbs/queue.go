package verbs

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"unsafe"

	"github.com/ebitengine/purego"
)

// Memory is memory outside of the Go heap, which is zero at first.
type Memory []byte

// NewMemory maps n bytes, rounded up to pages.
func NewMemory(n int) (Memory, error) {
	page := os.Getpagesize()
	b, err := syscall.Mmap(-1, 0, (n+page-1)/page*page, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_PRIVATE|syscall.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("verbs: map %d bytes: %w", n, err)
	}
	return b, nil
}

// Free unmaps the memory.
func (m Memory) Free() { _ = syscall.Munmap(m) }

// Addr returns the address of the memory.
func (m Memory) Addr() unsafe.Pointer { return unsafe.Pointer(&m[0]) }

// at returns a structure in C memory.
func at[T any](m Memory, offset uintptr) *T { return (*T)(unsafe.Pointer(&m[offset])) }

// A CQ is a completion queue with a channel of its own.
type CQ struct {
	d       *Device
	q       uintptr
	channel uintptr
	file    *os.File // a duplicate of the descriptor of the channel
	memory  Memory   // for the results of calls
	acks    int      // events that Wait has got
}

// completionsMax is the number of completions that Poll returns at most.
const completionsMax = 32

// offEvent is the offset in CQ.memory of the results of ibv_get_cq_event, after the completions of Poll: the addresses of the CQ and
// of its context.
const offEvent = unsafe.Sizeof(ibvWC{}) * completionsMax

// NewCQ makes a completion queue. After an error there is none to close.
func (d *Device) NewCQ(entries int) (_ *CQ, err error) {
	q := &CQ{d: d}
	defer func() {
		if err != nil {
			q.Close()
		}
	}()
	if q.memory, err = NewMemory(int(offEvent + 2*unsafe.Sizeof(uintptr(0)))); err != nil {
		return nil, err
	}
	if q.channel, err = create("ibv_create_comp_channel", fn.createCompChannel, d.c); err != nil {
		return nil, err
	}
	// The descriptor is closed with the channel, and the duplicate by the os.File.
	if q.file, err = duplicate(deref[ibvCompChannel](q.channel).fd, "completion channel"); err != nil {
		return nil, err
	}
	if q.q, err = create("ibv_create_cq", fn.createCQ, d.c, uintptr(entries), 0, q.channel, 0); err != nil {
		return nil, err
	}
	return q, nil
}

// duplicate returns a file with a copy of a descriptor of the library. Both become non-blocking: calls of the
// library that read from the descriptor return EAGAIN, and the file waits in the poller of the runtime.
func duplicate(descriptor int32, name string) (*os.File, error) {
	fd, err := syscall.Dup(int(descriptor))
	if err != nil {
		return nil, fmt.Errorf("verbs: duplicate the descriptor of the %s: %w", name, err)
	}
	syscall.CloseOnExec(fd)
	if err := syscall.SetNonblock(fd, true); err != nil {
		syscall.Close(fd)
		return nil, fmt.Errorf("verbs: %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// nextEvent calls a function that returns an event, or -1 and sets errno, when the file is readable. It blocks until there is an event,
// or until the file is closed.
func nextEvent(f *os.File, get func() error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Read(func(uintptr) bool {
		failed = get()
		for errors.Is(failed, syscall.EINTR) {
			failed = get()
		}
		return !errors.Is(failed, syscall.EAGAIN)
	})
	if err != nil {
		return err
	}
	return failed
}

// Arm requests an event for the next completion. Completions that have arrived before cause none.
func (q *CQ) Arm() error {
	r, _, _ := purego.SyscallN(q.d.ops.reqNotifyCQ, q.q, 0)
	if code := int32(r); code != 0 {
		return fmt.Errorf("verbs: ibv_req_notify_cq: %w", syscall.Errno(code))
	}
	return nil
}

// Wait blocks until an event arrives, or returns an error after Interrupt. One goroutine calls it, and Arm not meanwhile.
//
// ibv_get_cq_event lets the provider count the event. The provider of Mellanox cards sends this number with the next request of an event,
// and the card ignores a number that it has had.
func (q *CQ) Wait() error {
	err := nextEvent(q.file, func() error {
		cq, context := at[byte](q.memory, offEvent), at[byte](q.memory, offEvent+unsafe.Sizeof(uintptr(0)))
		return call("ibv_get_cq_event", fn.getCQEvent, q.channel, uintptr(unsafe.Pointer(cq)), uintptr(unsafe.Pointer(context)))
	})
	if err == nil {
		q.acks++
	}
	return err
}

// Interrupt makes Wait return an error, now and later.
func (q *CQ) Interrupt() { q.file.Close() }

// A Completion is the end of a work request.
type Completion struct {
	ID     uint64
	Status uint32
	Opcode uint32
	Vendor uint32
	Length int
	Imm    uint32
}

// Poll appends the completions that have arrived to list, up to a limit, without blocking.
func (q *CQ) Poll(list []Completion) ([]Completion, error) {
	r, _, _ := purego.SyscallN(q.d.ops.pollCQ, q.q, completionsMax, uintptr(q.memory.Addr()))
	n := int(int32(r))
	if n < 0 {
		return list, fmt.Errorf("verbs: ibv_poll_cq: returned %d", n)
	}
	for i := range n {
		w := at[ibvWC](q.memory, uintptr(i)*unsafe.Sizeof(ibvWC{}))
		list = append(list, Completion{ID: w.id, Status: w.status, Opcode: w.opcode, Vendor: w.vendorErr, Length: int(w.byteLen), Imm: swap(w.imm)})
	}
	return list, nil
}

// swap changes between the byte order of the network and that of this machine.
func swap(v uint32) uint32 { return v<<24 | v>>24 | v<<8&0xff0000 | v>>8&0xff00 }

// Close destroys the queue. Wait must have returned for the last time.
func (q *CQ) Close() (err error) {
	if q.file != nil {
		q.file.Close()
	}
	if q.q != 0 {
		if q.acks > 0 { // The library waits until all events are acknowledged.
			purego.SyscallN(fn.ackCQEvents, q.q, uintptr(q.acks))
		}
		err = call("ibv_destroy_cq", fn.destroyCQ, q.q)
	}
	if q.channel != 0 {
		if failed := call("ibv_destroy_comp_channel", fn.destroyCompChannel, q.channel); err == nil {
			err = failed
		}
	}
	if q.memory != nil {
		q.memory.Free()
	}
	return err
}

// A QP is a reliable connection.
type QP struct {
	d      *Device
	q      uintptr
	memory Memory // for work requests
	// Number identifies the QP at its port.
	Number uint32
	// Inline is the length of the longest payload that is sent without registration.
	Inline int
}

// A Queue is the size of the queues of a QP.
type Queue struct{ Send, Receive, Inline int }

// NewQP makes a QP with its completions in one CQ. QP.Inline is 0 if the device does not have as many inline bytes.
func (p *PD) NewQP(cq *CQ, size Queue) (*QP, error) {
	m, err := NewMemory(4096)
	if err != nil {
		return nil, err
	}
	a := &ibvQPInitAttr{sendCQ: cq.q, recvCQ: cq.q, kind: qpReliable}
	var q uintptr
	for {
		a.cap = ibvQPCap{uint32(size.Send), uint32(size.Receive), 1, 1, uint32(size.Inline)}
		if q, err = create("ibv_create_qp", fn.createQP, p.p, uintptr(unsafe.Pointer(a))); err == nil {
			break
		}
		if size.Inline == 0 {
			m.Free()
			return nil, err
		}
		size.Inline = 0
	}
	return &QP{d: p.d, q: q, memory: m, Number: deref[ibvQP](q).num, Inline: size.Inline}, nil
}

// Close destroys the QP: no memory is accessed afterwards.
func (q *QP) Close() error {
	err := call("ibv_destroy_qp", fn.destroyQP, q.q)
	q.memory.Free()
	return err
}

func (q *QP) modify(what string, a *ibvQPAttr, mask int) error {
	return call("ibv_modify_qp to "+what, fn.modifyQP, q.q, uintptr(unsafe.Pointer(a)), uintptr(mask))
}

// Init prepares the QP for receive requests. access has the remote accesses that keys may permit.
func (q *QP) Init(port, access int) error {
	return q.modify("INIT", &ibvQPAttr{state: stateInit, port: uint8(port), access: uint32(access)}, maskState|maskPKey|maskPort|maskAccess)
}

// A Route is the way to a QP of a peer.
type Route struct {
	Port, GIDIndex            int
	GID                       [16]byte // of the peer
	LID                       uint16   // of the peer
	Global                    bool     // the packets have GIDs: always with RoCE
	HopLimit                  int
	ServiceLevel              int
	TrafficClass              int
	MTU                       int
	QP, PSN                   uint32 // of the peer
	OwnPSN                    uint32
	AckTimeout, Retries, RNRs int // as in the InfiniBand specification
}

// Connect makes the QP receive, and then send.
func (q *QP) Connect(r Route) error {
	a := &ibvQPAttr{state: stateRTR, destQPN: r.QP, rqPSN: r.PSN, maxDestReads: 1, minRNRTimer: 12}
	for a.pathMTU = 1; a.pathMTU < 5 && 128<<(a.pathMTU+1) <= r.MTU; a.pathMTU++ {
	}
	a.ah = ibvAHAttr{dlid: r.LID, sl: uint8(r.ServiceLevel), port: uint8(r.Port)}
	if r.Global {
		a.ah.isGlobal = 1
		a.ah.grh = ibvGlobalRoute{dgid: r.GID, sgidIndex: uint8(r.GIDIndex), hopLimit: uint8(r.HopLimit), trafficClass: uint8(r.TrafficClass)}
	}
	if err := q.modify("RTR", a, maskState|maskAV|maskMTU|maskDestQPN|maskRQPSN|maskMaxDestRead|maskMinRNR); err != nil {
		return err
	}
	b := &ibvQPAttr{state: stateRTS, sqPSN: r.OwnPSN, timeout: uint8(r.AckTimeout), retries: uint8(r.Retries), rnrRetries: uint8(r.RNRs), maxReads: 1}
	return q.modify("RTS", b, maskState|maskTimeout|maskRetries|maskRNRRetries|maskSQPSN|maskMaxReads)
}

// Fail puts the QP into the error state: no memory is accessed afterwards, and all requests complete.
func (q *QP) Fail() error { return q.modify("ERR", &ibvQPAttr{state: stateError}, maskState) }

// Offsets in QP.memory.
const (
	offSend   = 0
	offRecv   = 256
	offSGE    = 320
	offBad    = 384
	offInline = 512 // up to the end
)

// Send posts a message with an immediate value. The payload is registered memory with a local key, or, if
// inline, at most Inline bytes of any memory.
func (q *QP) Send(id uint64, imm uint32, payload []byte, key uint32, inline bool) error {
	w := at[ibvSendWR](q.memory, offSend)
	*w = ibvSendWR{id: id, opcode: opSendImm, flags: flagSignaled, imm: swap(imm)}
	if len(payload) > 0 {
		addr := uint64(uintptr(unsafe.Pointer(&payload[0])))
		if inline {
			w.flags |= flagInline
			copy(q.memory[offInline:], payload)
			addr = uint64(uintptr(unsafe.Pointer(&q.memory[offInline])))
		}
		q.setSGE(addr, len(payload), key)
		w.sgList, w.sges = uintptr(unsafe.Pointer(&q.memory[offSGE])), 1
	}
	return q.post("send", w)
}

func (q *QP) setSGE(addr uint64, n int, key uint32) {
	*at[ibvSGE](q.memory, offSGE) = ibvSGE{addr: addr, length: uint32(n), lkey: key}
}

// Write posts an RDMA write of registered memory.
func (q *QP) Write(id uint64, payload []byte, key uint32, remoteAddr uint64, remoteKey uint32) error {
	w := at[ibvSendWR](q.memory, offSend)
	*w = ibvSendWR{id: id, opcode: opWrite, flags: flagSignaled, remoteAddr: remoteAddr, remoteKey: remoteKey}
	q.setSGE(uint64(uintptr(unsafe.Pointer(&payload[0]))), len(payload), key)
	w.sgList, w.sges = uintptr(unsafe.Pointer(&q.memory[offSGE])), 1
	return q.post("RDMA write", w)
}

// Bind posts the binding of a window to n bytes at addr of registered memory, for writes of the peer. It
// sets Window.Key, which is valid after the completion.
func (q *QP) Bind(id uint64, win *Window, m *MR, addr unsafe.Pointer, n int) error {
	win.Key = win.Key&^0xff | (win.Key+1)&0xff
	win.Uses++
	w := at[ibvSendWR](q.memory, offSend)
	*w = ibvSendWR{
		id: id, opcode: opBind, flags: flagSignaled, mw: win.w, mwKey: win.Key,
		bindMR: m.m, bindAddr: uint64(uintptr(addr)), bindLength: uint64(n), bindAccess: AccessRemoteWrite,
	}
	err := q.post("bind a memory window", w)
	deref[ibvMW](win.w).rkey = win.Key // The provider passes the key of the last binding to the device.
	return err
}

// Invalidate posts the end of the binding of a window.
func (q *QP) Invalidate(id uint64, win *Window) error {
	w := at[ibvSendWR](q.memory, offSend)
	*w = ibvSendWR{id: id, opcode: opInvalidate, flags: flagSignaled, imm: win.Key}
	return q.post("invalidate a memory window", w)
}

func (q *QP) post(what string, w *ibvSendWR) error {
	r, _, _ := purego.SyscallN(q.d.ops.postSend, q.q, uintptr(unsafe.Pointer(w)), uintptr(unsafe.Pointer(&q.memory[offBad])))
	if code := int32(r); code != 0 {
		return fmt.Errorf("verbs: ibv_post_send: %s: %w", what, syscall.Errno(max(code, -code)))
	}
	return nil
}

// Receive posts registered memory for the next message.
func (q *QP) Receive(id uint64, memory []byte, key uint32) error {
	w := at[ibvRecvWR](q.memory, offRecv)
	q.setSGE(uint64(uintptr(unsafe.Pointer(&memory[0]))), len(memory), key)
	*w = ibvRecvWR{id: id, sgList: uintptr(unsafe.Pointer(&q.memory[offSGE])), sges: 1}
	r, _, _ := purego.SyscallN(q.d.ops.postRecv, q.q, uintptr(unsafe.Pointer(w)), uintptr(unsafe.Pointer(&q.memory[offBad])))
	if code := int32(r); code != 0 {
		return fmt.Errorf("verbs: ibv_post_recv: %w", syscall.Errno(max(code, -code)))
	}
	return nil
}

// An Event concerns a device or a port.
type Event struct {
	Fatal bool // the device works no more
	Down  int  // the number of a port that is down, or 0
}

// Events returns a file for [Device.Event]. It is readable when there is an event.
func (d *Device) Events() (*os.File, error) {
	return duplicate(deref[ibvContext](d.c).asyncFD, "events of the device")
}

// Event blocks until the next event, or returns an error after the file of [Device.Events] is closed. One goroutine calls it.
func (d *Device) Event(f *os.File) (Event, error) {
	e := new(ibvAsyncEvent)
	err := nextEvent(f, func() error {
		return call("ibv_get_async_event", fn.getAsyncEvent, d.c, uintptr(unsafe.Pointer(e)))
	})
	if err != nil {
		return Event{}, err
	}
	kind, element := e.kind, int(e.element)
	purego.SyscallN(fn.ackAsyncEvent, uintptr(unsafe.Pointer(e)))
	switch kind {
	case eventDeviceFatal:
		return Event{Fatal: true}, nil
	case eventPortError:
		return Event{Down: element}, nil
	}
	return Event{}, nil
}
