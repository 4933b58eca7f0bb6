package devicetest

import (
	"errors"

	"github.com/nexar-go/nexar/device"
)

// testPeer: an attached buffer has the memory of the exported one, on another device and on the same one.
func testPeer(x *check) {
	const n = 1000
	owner := x.d.(device.Peer)
	other, ok := x.another().(device.Peer)
	if !ok {
		x.Errorf("the factory returns a device.Peer, and then another device")
		return
	}
	for _, d := range []device.Peer{other, owner} {
		b, data := x.filled(n)
		name, err := owner.Export(b)
		x.must(err, "export")
		if len(name) < 1 || len(name) > 256 {
			x.Errorf("a name of %d bytes, want 1 to 256", len(name))
		}
		a, err := d.Attach(name)
		x.must(err, "attach")
		if a.Device() != device.Device(d) || a.Len() != n {
			x.Errorf("the attached buffer is of device %s and has %d bytes, want %s and %d", a.Device().Name(), a.Len(), d.Name(), n)
		}
		got := x.random(n)
		x.must(d.CopyOut(x.ctx, got, device.Whole(a)), "copy out of an attached buffer")
		x.same(got, data, "attached buffer")

		// Writes of both are seen by the other one.
		copy(data[100:200], x.random(100))
		x.must(d.CopyIn(x.ctx, device.Region{Buffer: a, Offset: 100, Bytes: 100}, data[100:200]), "copy in to an attached buffer")
		x.want(b, data, "exported buffer after a write to the attached one")
		copy(data[300:], x.random(50))
		x.copyIn(device.Region{Buffer: b, Offset: 300, Bytes: 50}, data[300:350])
		x.attachedCopy(d, a, data)

		x.must(a.Free(), "free an attached buffer")
		x.wantError(a.Free(), device.ErrFreed, "a second Free of an attached buffer")
		x.want(b, data, "exported buffer after Free of the attached one")
		x.must(b.Free(), "free")
		_, err = owner.Export(b)
		x.wantError(err, device.ErrFreed, "Export of a freed buffer")
	}
	x.peerMisuse(owner)
}

// attachedCopy copies an attached buffer by a stream.
func (x *check) attachedCopy(d device.Device, a device.Buffer, data []byte) {
	x.Helper()
	s, err := d.NewStream()
	x.must(err, "new stream")
	defer s.Close()
	c, err := d.Alloc(x.ctx, a.Len())
	x.must(err, "alloc")
	defer x.free(c)
	x.must(s.Copy(device.Whole(c), device.Whole(a)), "copy an attached buffer")
	x.must(s.Wait(x.ctx), "wait")
	got := x.random(len(data))
	x.must(d.CopyOut(x.ctx, got, device.Whole(c)), "copy out")
	x.same(got, data, "copy of an attached buffer")
}

// peerMisuse: invalid buffers and names are errors.
func (x *check) peerMisuse(d device.Peer) {
	x.Helper()
	foreign := x.foreign(NewFake(x, FakeConfig{Name: "other"}))
	if _, err := d.Export(foreign); !isForeign(err) {
		x.Errorf("Export of a foreign buffer: got error %v, want a ForeignError", err)
	}
	if _, err := d.Export(x.alloc(0)); !isLengthError(err) {
		x.Errorf("Export of a buffer of 0 bytes: got error %v, want a LengthError", err)
	}
	name, err := d.Export(x.alloc(100))
	x.must(err, "export")
	for what, bad := range map[string][]byte{"no": nil, "half a": name[:len(name)/2], "a random": x.random(len(name))} {
		if a, err := d.Attach(bad); err == nil {
			x.Errorf("Attach of %s name succeeds", what)
			x.free(a)
		}
	}
}

// foreign returns a buffer of 100 bytes of another device.
func (x *check) foreign(d device.Device) device.Buffer {
	x.Helper()
	b, err := d.Alloc(x.ctx, 100)
	x.must(err, "alloc on another device")
	x.Cleanup(func() { x.free(b) })
	return b
}

func isForeign(err error) bool {
	_, ok := errors.AsType[*device.ForeignError](err)
	return ok
}
