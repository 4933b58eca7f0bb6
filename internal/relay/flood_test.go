package relay

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"runtime/pprof"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/relay/relaytest"
	"github.com/nexar-go/nexar/internal/require"
)

// heap returns the size of the heap.
func heap() int {
	runtime.GC()
	runtime.GC() // It empties the pools.
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestFloods: a hostile neighbor sends frames to a node without an end: questions and answers, also with forged sources, and packets of no
// connection. The node's memory does not grow, and its own transfer over other neighbors goes on: neither its packets nor its handshakes wait
// behind the answers.
func TestFloods(t *testing.T) {
	require.NoRace(t, "it measures the heap")
	const batch = 300 // frames in a millisecond
	for name, forge := range map[string]func(rng *rand.Rand, f *forward.Frame){
		"questions": func(_ *rand.Rand, f *forward.Frame) { f.Kind, f.Payload = forward.Question, make([]byte, 8) },
		"long questions": func(_ *rand.Rand, f *forward.Frame) {
			f.Kind, f.Payload = forward.Question, make([]byte, forward.PayloadMax)
		},
		"questions of forged sources": func(rng *rand.Rand, f *forward.Frame) {
			f.Kind, f.Payload = forward.Question, make([]byte, 8)
			binary.BigEndian.PutUint64(f.Source[:], rng.Uint64())
		},
		"questions of another node": func(rng *rand.Rand, f *forward.Frame) { // The answers share its link with the transfer.
			f.Kind, f.Payload, f.Source = forward.Question, make([]byte, 8), relaytest.ID(2)
		},
		"answers": func(rng *rand.Rand, f *forward.Frame) {
			f.Kind, f.Payload = forward.Answer, binary.BigEndian.AppendUint64(nil, rng.Uint64())
			binary.BigEndian.PutUint64(f.Source[:], rng.Uint64())
		},
		"packets of no connection": func(rng *rand.Rand, f *forward.Frame) {
			packet := make([]byte, 100)
			binary.BigEndian.PutUint64(packet, rng.Uint64())
			packet[0] = 0x40 | packet[0]&0x3f
			f.Payload = forward.AppendPacket(nil, packet)
			binary.BigEndian.PutUint64(f.Source[:], rng.Uint64())
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// Node 1 is hostile. Node 2 is the peer, and node 3 the destination of answers to nowhere.
				n := newNetworkOver(t, relaytest.Graph{{1, 2}, {0}, {0}}, medium{latency: millisecond, bandwidth: func(from, to int) int {
					if from == 1 {
						return 0
					}
					return 10_000_000 // bytes a second
				}}, nil)
				rng := rand.New(rand.NewPCG(1, 9))
				a, b := n.connect(0, 2)
				data := payload(2 << 20)
				timed := func() time.Duration {
					began := time.Now()
					if got := n.transfer(a, b, data, func() {}); !bytes.Equal(got, data) {
						t.Errorf("got %d bytes, want %d equal ones", len(got), len(data))
					}
					return time.Since(began)
				}
				timed()
				alone := timed()
				before := heap()
				most, isOver, flood := 0, make(chan struct{}), make(chan struct{})
				go func() {
					defer close(isOver)
					for i := 0; ; i++ {
						if i%batch == 0 {
							select {
							case <-flood:
								return
							default:
							}
							time.Sleep(time.Millisecond)
							synctest.Wait()
							if i%(20*batch) == 0 {
								most = max(most, heap()-before)
							}
						}
						f := forward.Frame{Kind: forward.Packets, Hops: 1, Salt: uint8(i), Source: relaytest.ID(1), Destination: relaytest.ID(0)}
						forge(rng, &f)
						n.inject(1, 0, f, 0)
					}
				}()
				beside := timed()
				began := time.Now()
				n.connect(0, 2)
				dialed := time.Since(began)
				close(flood)
				<-isOver
				time.Sleep(time.Minute)
				left := heap() - before
				t.Logf("alone %v, beside the flood %v, a dial %v; the heap has grown by %d KiB, and by %d at the end", alone, beside, dialed, most>>10, left>>10)
				if most > 16<<20 || left > 2<<20 {
					t.Errorf("the heap has grown by %d bytes, and by %d at the end", most, left)
				}
				if beside > 3*alone || dialed > time.Second {
					t.Errorf("a transfer takes %v, and %v beside the flood, a dial %v", alone, beside, dialed)
				}
			})
		})
	}
}

// TestUnfinishedHandshakes: a neighbor begins many handshakes with forged sources and never finishes one. Their number and memory are bounded,
// nodes behind other neighbors are accepted meanwhile, and nothing is left.
func TestUnfinishedHandshakes(t *testing.T) {
	require.NoRace(t, "it measures the heap")
	const handshakes = 20_000
	synctest.Test(t, func(t *testing.T) {
		n := newNetworkOver(t, relaytest.Graph{{1, 2}, {0}, {0}}, medium{latency: millisecond}, nil)
		n.connect(2, 0)
		before, goroutines := heap(), runtime.NumGoroutine()
		rng := rand.New(rand.NewPCG(1, 9))
		mostHeap, most := 0, 0
		for i := range handshakes {
			packet := make([]byte, 1200)
			for k := range packet {
				packet[k] = byte(rng.Uint32())
			}
			copy(packet, []byte{0xc3, 0, 0, 0, 1, 8})
			copy(packet[14:], []byte{4, 1, 2, 3, byte(i), 0, 0x44, 0x9a})
			f := forward.Frame{
				Kind: forward.Packets, Hops: 1, Source: relaytest.ID(1), Destination: relaytest.ID(0), Payload: forward.AppendPacket(nil, packet),
			}
			binary.BigEndian.PutUint64(f.Source[:], rng.Uint64())
			n.inject(1, 0, f, 0)
			if i%1000 == 999 {
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				most, mostHeap = max(most, runtime.NumGoroutine()-goroutines), max(mostHeap, heap()-before)
			}
			if i%5000 == 4999 {
				began := time.Now()
				n.connect(2, 0)
				if took := time.Since(began); took > time.Second {
					t.Errorf("the dial of another node takes %v", took)
				}
			}
		}
		t.Logf("the flood has brought %d goroutines and %d KiB", most, mostHeap>>10)
		if most < 100 || most > 5000 || mostHeap > 100<<20 {
			t.Errorf("the flood has brought %d goroutines and %d bytes", most, mostHeap)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if left, bytes := runtime.NumGoroutine()-goroutines, heap()-before; left > 40 || bytes > 2<<20 {
			var running strings.Builder
			pprof.Lookup("goroutine").WriteTo(&running, 1)
			t.Errorf("%d goroutines and %d bytes are left after a minute:\n%s", left, bytes, running.String())
		}
		n.connect(1, 0)
	})
}
