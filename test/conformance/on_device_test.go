package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/device/devicetest"
	"github.com/nexar-go/nexar/device/host"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/test/worldtest"
)

// A spot is the location of the vectors of a rank: buffers of a device, or slices if dev
// is nil.
type spot struct {
	dev    device.Device
	stream device.Stream
}

// newSpot returns a location on a device, until the end of the test.
func newSpot(t testing.TB, dev device.Device) spot {
	t.Helper()
	s, err := dev.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return spot{dev, s}
}

func newFake(t testing.TB, cfg devicetest.FakeConfig) *devicetest.Fake {
	t.Helper()
	return devicetest.NewFake(t, cfg)
}

// arrangements returns locations of the vectors of n ranks.
func arrangements() map[string]func(t testing.TB, n int) []spot {
	each := func(f func(t testing.TB, rank int) spot) func(t testing.TB, n int) []spot {
		return func(t testing.TB, n int) (spots []spot) {
			for rank := range n {
				spots = append(spots, f(t, rank))
			}
			return spots
		}
	}
	fake := func(t testing.TB, rank int, delay time.Duration) spot {
		return newSpot(t, newFake(t, devicetest.FakeConfig{Name: fmt.Sprintf("fake:%d", rank), DelayMax: delay, Seed: uint64(rank)}))
	}
	return map[string]func(t testing.TB, n int) []spot{
		"fakes":      each(func(t testing.TB, rank int) spot { return fake(t, rank, 0) }),
		"slow fakes": each(func(t testing.TB, rank int) spot { return fake(t, rank, 2*time.Millisecond) }),
		"fast fakes": each(func(t testing.TB, rank int) spot { return fake(t, rank, -1) }),
		"one stream": func(t testing.TB, n int) (spots []spot) {
			one := fake(t, 0, 0)
			for range n {
				spots = append(spots, one)
			}
			return spots
		},
		"host": each(func(t testing.TB, rank int) spot { return newSpot(t, host.Device{}) }),
		"mixed": each(func(t testing.TB, rank int) spot {
			switch rank % 3 {
			case 0:
				return fake(t, rank, 0)
			case 1:
				return spot{}
			}
			return newSpot(t, host.Device{})
		}),
	}
}

// An image is a vector in a buffer, in rows or contiguous, between bytes that must not
// change.
type image struct {
	region device.Region
	size   int // of the buffer
}

const (
	imageLead = 7 // bytes before the vector: buffers need no alignment
	imageGap  = 3 // between rows
)

// newImage stores v in rows of a given number of bytes, or contiguously if it is 0.
func (s spot) newImage(ctx context.Context, v []byte, row int) (image, error) {
	r := device.Region{Offset: imageLead, Bytes: len(v)}
	if row > 0 && len(v) > 0 {
		r.Bytes, r.Rows, r.Stride = row, len(v)/row, row+imageGap
	}
	i := image{r, imageLead + len(v) + imageGap*(r.RowCount()+1)}
	content := bytes.Repeat([]byte{guardByte}, i.size)
	for k := range r.RowCount() {
		copy(content[r.RowAt(k):][:r.Bytes], v[k*r.Bytes:])
	}
	var err error
	if i.region.Buffer, err = s.dev.Alloc(ctx, i.size); err != nil {
		return i, err
	}
	return i, s.dev.CopyIn(ctx, device.Whole(i.region.Buffer), content)
}

// read copies the vector to v, and checks the bytes around it.
func (s spot) read(ctx context.Context, i image, v []byte) error {
	content := make([]byte, i.size)
	if err := s.dev.CopyOut(ctx, content, device.Whole(i.region.Buffer)); err != nil {
		return err
	}
	r := i.region
	for k := range r.RowCount() {
		row := content[r.RowAt(k):][:r.Bytes]
		copy(v[k*r.Bytes:], row)
		copy(row, bytes.Repeat([]byte{guardByte}, r.Bytes))
	}
	if n := bytes.Count(content, []byte{guardByte}); n != len(content) {
		return fmt.Errorf("%d bytes around %+v were written", len(content)-n, r)
	}
	return nil
}

// block returns the region of a block. Rows are blocks.
func (i image) block(n, rank int) device.Region {
	r := i.region
	if r.Rows > 1 {
		return device.Region{Buffer: r.Buffer, Offset: r.RowAt(rank), Bytes: r.Bytes}
	}
	r.Bytes /= n
	r.Offset += rank * r.Bytes
	return r
}

// rowOf returns the length of rows that divide n bytes, into whole elements or not.
func rowOf(n int) int {
	for row := min(1000, n/2); row > 1; row-- {
		if n%row == 0 {
			return row
		}
	}
	return min(n, 1)
}

// onDevice runs a collective with the vectors of this rank in buffers.
func (p *party[T]) onDevice(ctx context.Context, c *nexar.Comm, s spot, rows bool) (err error) {
	whole, part := p.data, p.input
	if len(part.v) > len(whole.v) {
		whole, part = part, whole
	}
	wholeRow, partRow := 0, 0
	if rows {
		wholeRow, partRow = rowOf(len(bytesOf(whole.v))), rowOf(len(bytesOf(part.v)))
		if p.isInPlace() {
			wholeRow = len(bytesOf(part.v))
		}
	}
	large, err := s.newImage(ctx, bytesOf(whole.v), wholeRow)
	if err != nil {
		return err
	}
	defer large.region.Buffer.Free()
	small := image{region: large.block(p.n, p.rank)}
	if !p.isInPlace() {
		if small, err = s.newImage(ctx, bytesOf(part.v), partRow); err != nil {
			return err
		}
		defer small.region.Buffer.Free()
	}
	dst, src := large.region, small.region
	if len(p.input.v) > len(p.data.v) {
		dst, src = src, dst
	}
	if err := p.callOnDevice(ctx, c.WithStream(s.stream), dst, src); err != nil {
		return err
	}
	if err := s.read(ctx, large, bytesOf(whole.v)); err != nil {
		return err
	}
	if p.isInPlace() {
		return nil
	}
	return s.read(ctx, small, bytesOf(part.v))
}

func (p *party[T]) callOnDevice(ctx context.Context, d nexar.DeviceComm, dst, src device.Region) error {
	t := p.kind.typ
	if (p.rank+p.count)%2 == 1 {
		return p.startOnDevice(ctx, d, dst, src).Wait()
	}
	switch p.collective {
	case plan.Broadcast:
		return d.Broadcast(ctx, t, dst, p.root)
	case plan.Reduction:
		return d.Reduce(ctx, t, dst, p.op, p.root)
	case plan.AllReduce:
		return d.AllReduce(ctx, t, dst, p.op)
	case plan.Gather:
		if p.absent {
			dst = device.Region{Offset: -1, Bytes: 7, Rows: -3} // ignored
		}
		return d.Gather(ctx, t, dst, src, p.root)
	case plan.AllGather:
		return d.AllGather(ctx, t, dst, src)
	case plan.Scatter:
		if p.rank != p.root && p.rank%2 == 0 {
			src = device.Region{}
		}
		return d.Scatter(ctx, t, dst, src, p.root)
	case plan.ReduceScatter:
		return d.ReduceScatter(ctx, t, dst, src, p.op)
	case plan.AllToAll:
		return d.AllToAll(ctx, t, dst, src)
	case plan.Scan:
		return d.Scan(ctx, t, dst, p.op)
	case plan.ExclusiveScan:
		return d.ExclusiveScan(ctx, t, dst, p.op)
	}
	panic("no such collective")
}

// startOnDevice is callOnDevice with Start methods.
func (p *party[T]) startOnDevice(ctx context.Context, d nexar.DeviceComm, dst, src device.Region) *nexar.Handle {
	t := p.kind.typ
	switch p.collective {
	case plan.Broadcast:
		return d.StartBroadcast(ctx, t, dst, p.root)
	case plan.Reduction:
		return d.StartReduce(ctx, t, dst, p.op, p.root)
	case plan.AllReduce:
		return d.StartAllReduce(ctx, t, dst, p.op)
	case plan.Gather:
		if p.absent {
			dst = device.Region{Offset: -1, Bytes: 7, Rows: -3} // ignored
		}
		return d.StartGather(ctx, t, dst, src, p.root)
	case plan.AllGather:
		return d.StartAllGather(ctx, t, dst, src)
	case plan.Scatter:
		return d.StartScatter(ctx, t, dst, src, p.root)
	case plan.ReduceScatter:
		return d.StartReduceScatter(ctx, t, dst, src, p.op)
	case plan.AllToAll:
		return d.StartAllToAll(ctx, t, dst, src)
	case plan.Scan:
		return d.StartScan(ctx, t, dst, p.op)
	case plan.ExclusiveScan:
		return d.StartExclusiveScan(ctx, t, dst, p.op)
	}
	panic("no such collective")
}

// tryAt runs the part of one rank of a trial at the location of its vectors.
func tryAt[T nexar.Number](ctx context.Context, c *nexar.Comm, tr trial, s spot, rows bool) ([]byte, error) {
	p := &party[T]{trial: tr, values: tr.kind.values(tr.op, tr.flavour), rank: c.Rank(), n: c.Size()}
	p.prepare()
	if s.dev == nil {
		if err := p.call(ctx, c); err != nil {
			return nil, err
		}
	} else if err := p.onDevice(ctx, c, s, rows); err != nil {
		return nil, err
	}
	return bytesOf(p.data.v), p.check()
}

func triesAt() map[kernel.Type]func(ctx context.Context, c *nexar.Comm, tr trial, s spot, rows bool) ([]byte, error) {
	return map[kernel.Type]func(ctx context.Context, c *nexar.Comm, tr trial, s spot, rows bool) ([]byte, error){
		kernel.Int8: tryAt[int8], kernel.Int16: tryAt[int16], kernel.Int32: tryAt[int32], kernel.Int64: tryAt[int64],
		kernel.Uint8: tryAt[uint8], kernel.Uint16: tryAt[uint16], kernel.Uint32: tryAt[uint32], kernel.Uint64: tryAt[uint64],
		kernel.Float32: tryAt[float32], kernel.Float64: tryAt[float64], kernel.Float16: tryAt[nexar.Float16], kernel.BFloat16: tryAt[nexar.BFloat16],
		kernel.Float8E4M3: tryAt[nexar.Float8E4M3], kernel.Float8E5M2: tryAt[nexar.Float8E5M2],
	}
}

// deviceTrials returns all collectives, with vectors that are short, empty, and too long
// to be sent without a grant, and in place where that is allowed.
func deviceTrials(b *trialGenerator) (list []trial) {
	for _, c := range plan.Collectives() {
		if c == plan.Barrier {
			continue
		}
		for _, count := range []int{0, 1, 1009, 40_000} {
			for inPlace := range 3 {
				if inPlace > 0 && (c == plan.AllToAll || !inBlocks(c)) {
					continue
				}
				tr := b.draw(trial{collective: c, count: count, algorithm: -1, inPlace: inPlace})
				tr.root = int(b.drawn) % b.n
				if count > 10_000 {
					tr.count /= b.n
				}
				list = append(list, tr)
			}
		}
	}
	return list
}

// TestOnDevice: each collective has the same result on devices as with slices, for all
// locations of the vectors, and does not change the memory around them.
func TestOnDevice(t *testing.T) {
	for _, m := range worldtest.Media(worldtest.Mem(), worldtest.QUIC()) {
		for n := 1; n <= 5; n++ {
			comms := m.Cluster(t, n, nexar.Config{})
			for name, arrange := range arrangements() {
				if m.Name != worldtest.Mem().Name && (name == "slow fakes" || name == "fast fakes") {
					continue // These would take as long as the device does.
				}
				t.Run(fmt.Sprintf("%s/ranks=%d/%s", m.Name, n, name), func(t *testing.T) {
					spots := arrange(t, n)
					b := &trialGenerator{n: n, kinds: kinds(), network: m.Cost, drawn: uint64(1000*n + len(name))}
					for i, tr := range deviceTrials(b) {
						if worldtest.Mix(b.drawn+uint64(i))%worldtest.Thin(1) != 0 {
							continue
						}
						if err := tr.onDevices(t.Context(), comms, spots, i%3 == 0); err != nil {
							t.Fatal(err)
						}
					}
				})
			}
		}
	}
}

// onDevices runs a trial with the vectors at the spots. No rank waits for a failed one.
func (tr trial) onDevices(ctx context.Context, comms []*nexar.Comm, spots []spot, rows bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	try := triesAt()[tr.kind.typ]
	results := make([][]byte, len(comms))
	err := worldtest.ForEach(len(comms), func(rank int) (err error) {
		results[rank], err = try(ctx, comms[rank], tr, spots[rank], rows)
		if err != nil {
			cancel(err)
		}
		return err
	})
	if err = errors.Join(err, tr.compare(results)); err != nil {
		return fmt.Errorf("%v, in rows: %v:\n%w", tr, rows, err)
	}
	return nil
}
