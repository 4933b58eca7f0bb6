package verbs

import (
	"bytes"
	"testing"

	"github.com/nexar-go/nexar/internal/require"
)

// device opens the first device.
func device(t *testing.T) *Device {
	names, err := Devices()
	require.Have(t, "rdma", err == nil && len(names) > 0, "there is no RDMA device; \"make rdma\" runs the test in a virtual machine with one")
	d, err := Open(names[0])
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// must fails the test because of an error.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// An end is one of two connected QPs with a registered buffer.
type end struct {
	t   *testing.T
	cq  *CQ
	qp  *QP
	mr  *MR
	buf Memory
}

func newEnd(t *testing.T, d *Device, pd *PD) *end {
	e := &end{t: t}
	var err error
	e.cq, err = d.NewCQ(64)
	must(t, err)
	t.Cleanup(func() { must(t, e.cq.Close()) })
	e.buf, err = NewMemory(1 << 16)
	must(t, err)
	e.mr, err = pd.Register(e.buf.Addr(), len(e.buf), AccessLocalWrite|AccessWindowBind)
	must(t, err)
	t.Cleanup(func() { must(t, e.mr.Close()) })
	e.qp, err = pd.NewQP(e.cq, Queue{Send: 16, Receive: 16, Inline: 64})
	must(t, err)
	t.Cleanup(func() { must(t, e.qp.Close()) })
	must(t, e.qp.Init(1, AccessRemoteWrite))
	return e
}

// done waits for the next completion.
func (e *end) done() Completion {
	e.t.Helper()
	for {
		must(e.t, e.cq.Arm())
		list, err := e.cq.Poll(nil)
		must(e.t, err)
		switch len(list) {
		case 0:
			must(e.t, e.cq.Wait())
		case 1:
			return list[0]
		default:
			e.t.Fatalf("%d completions, want 1: %+v", len(list), list)
		}
	}
}

func (e *end) wantDone(opcode uint32) Completion {
	e.t.Helper()
	c := e.done()
	if c.Status != Success || c.Opcode != opcode {
		e.t.Fatalf("completion %+v (%s), want opcode %d", c, StatusText(c.Status), opcode)
	}
	return c
}

func pair(t *testing.T) (d *Device, pd *PD, a, b *end) {
	d = device(t)
	port, err := d.Port(1)
	must(t, err)
	if !port.Active {
		t.Fatalf("port 1 of %s is not active", d.Name)
	}
	gids := d.GIDs(port)
	if len(gids) == 0 {
		t.Fatalf("port 1 of %s has no GID", d.Name)
	}
	gid := gids[len(gids)-1]
	pd, err = d.NewPD()
	must(t, err)
	t.Cleanup(func() { must(t, pd.Close()) })
	a, b = newEnd(t, d, pd), newEnd(t, d, pd)
	for _, e := range [][2]*end{{a, b}, {b, a}} {
		must(t, e[0].qp.Connect(Route{
			Port: 1, GIDIndex: gid.Index, GID: gid.GID, Global: true, HopLimit: 64, MTU: port.MTU, QP: e[1].qp.Number, PSN: 5, OwnPSN: 5,
			AckTimeout: 14, Retries: 6, RNRs: 6,
		}))
	}
	return d, pd, a, b
}

func TestSend(t *testing.T) {
	_, _, a, b := pair(t)
	for i, n := range []int{0, 1, 64, 5000} {
		must(t, b.qp.Receive(uint64(i), b.buf[:8192], b.mr.Local))
		for j := range n {
			a.buf[j] = byte(j + n)
		}
		must(t, a.qp.Send(7, 0xA1B2C3D4, a.buf[:n], a.mr.Local, n <= a.qp.Inline))
		c := b.wantDone(DoneReceive)
		if c.ID != uint64(i) || c.Length != n || c.Imm != 0xA1B2C3D4 || !bytes.Equal(b.buf[:n], a.buf[:n]) {
			t.Errorf("message of %d bytes: completion %+v, or wrong bytes", n, c)
		}
		a.wantDone(DoneSend)
	}
}

// TestWindow: a write is possible while a window is bound, and not afterwards with the old key.
func TestWindow(t *testing.T) {
	d, pd, a, b := pair(t)
	if !d.Windows() {
		t.Fatalf("device %s has no memory windows", d.Name)
	}
	w, err := pd.NewWindow()
	must(t, err)
	defer w.Close()
	for i := range byte(3) {
		must(t, b.qp.Bind(1, w, b.mr, b.buf[100:].Addr(), 50))
		b.wantDone(DoneBind)
		copy(a.buf, bytes.Repeat([]byte{i + 1}, 50))
		must(t, a.qp.Write(2, a.buf[:50], a.mr.Local, uint64(uintptr(b.buf[100:].Addr())), w.Key))
		a.wantDone(DoneWrite)
		if want := bytes.Repeat([]byte{i + 1}, 50); !bytes.Equal(b.buf[100:150], want) || b.buf[99]+b.buf[150] != 0 {
			t.Fatalf("bytes after a write: %v", b.buf[99:151])
		}
		must(t, b.qp.Invalidate(3, w))
		b.wantDone(DoneInvalidate)
	}
	before := bytes.Clone(b.buf)
	copy(a.buf, bytes.Repeat([]byte{99}, 50))
	must(t, a.qp.Write(2, a.buf[:50], a.mr.Local, uint64(uintptr(b.buf[100:].Addr())), w.Key))
	if c := a.done(); c.Status != StatusRemoteKey {
		t.Errorf("write with the key of an invalidated window: status %d (%s), want %d", c.Status, StatusText(c.Status), StatusRemoteKey)
	}
	if !bytes.Equal(b.buf, before) {
		t.Error("a write with the key of an invalidated window changed memory")
	}
}
