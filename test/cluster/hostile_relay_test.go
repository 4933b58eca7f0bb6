package cluster

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay"
	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/trace"
)

const (
	// tamperEnv makes a worker a hostile relay. Its value is a key of tampers.
	tamperEnv = "CLUSTERTEST_TAMPER"
	// tampered is in the log of a hostile relay that has tampered with a frame.
	tampered = "this relay tampers with a frame"
)

// A hostileRelay is the state of a hostile relay.
type hostileRelay struct {
	mu   sync.Mutex
	rng  *rand.Rand
	old  []forward.Frame
	once sync.Once
}

// tampering lets the hostile relays of this process act.
var tampering atomic.Bool

// tamper begins to act as a hostile relay.
func tamper(context.Context, *workerState, command, *result) error {
	tampering.Store(true)
	return nil
}

// tampers are the actions of hostile relays. Each returns the frames that are written instead of f.
func tampers() map[string]func(h *hostileRelay, to membership.NodeID, f forward.Frame) []forward.Frame {
	return map[string]func(h *hostileRelay, to membership.NodeID, f forward.Frame) []forward.Frame{
		"drops": func(h *hostileRelay, _ membership.NodeID, f forward.Frame) []forward.Frame {
			if h.rng.IntN(6) == 0 {
				h.note()
				return nil
			}
			return []forward.Frame{f}
		},
		"delays": func(h *hostileRelay, _ membership.NodeID, f forward.Frame) []forward.Frame {
			h.note()
			time.Sleep(time.Duration(h.rng.IntN(10)) * time.Millisecond)
			return []forward.Frame{f}
		},
		"repeats": func(h *hostileRelay, _ membership.NodeID, f forward.Frame) []forward.Frame {
			again := f
			again.Payload = slices.Clone(f.Payload)
			h.old = append(h.old[max(0, len(h.old)-200):], again)
			if h.rng.IntN(8) > 0 {
				return []forward.Frame{f}
			}
			h.note()
			again = h.old[h.rng.IntN(len(h.old))]
			again.Hops = f.Hops
			return []forward.Frame{f, again}
		},
		"alters": func(h *hostileRelay, _ membership.NodeID, f forward.Frame) []forward.Frame {
			if f.Kind == forward.Packets && len(f.Payload) > 0 && h.rng.IntN(6) == 0 {
				h.note()
				f.Payload = slices.Clone(f.Payload)
				f.Payload[h.rng.IntN(len(f.Payload))] ^= 1 << h.rng.IntN(8)
			}
			return []forward.Frame{f}
		},
		"forges": func(h *hostileRelay, _ membership.NodeID, f forward.Frame) []forward.Frame {
			if f.Kind == forward.Packets && len(f.Payload) > 0 && h.rng.IntN(6) == 0 {
				h.note()
				f.Payload = make([]byte, len(f.Payload))
				for i := range f.Payload {
					f.Payload[i] = byte(h.rng.Uint32())
				}
				f.Kind = []forward.Kind{forward.Packets, forward.Question, forward.Answer}[h.rng.IntN(3)]
			}
			return []forward.Frame{f}
		},
		"rewrites": func(h *hostileRelay, to membership.NodeID, f forward.Frame) []forward.Frame {
			if h.rng.IntN(6) > 0 {
				return []forward.Frame{f}
			}
			h.note()
			switch h.rng.IntN(4) {
			case 0:
				f.Source = to
			case 1:
				f.Source[h.rng.IntN(len(f.Source))] ^= 1
			case 2:
				f.Salt ^= 1 << h.rng.IntN(8)
			default:
				f.Destination[h.rng.IntN(len(f.Destination))] ^= 1
			}
			return []forward.Frame{f}
		},
		"alters all": func(h *hostileRelay, _ membership.NodeID, f forward.Frame) []forward.Frame {
			if f.Kind == forward.Packets {
				h.note()
				f.Payload = slices.Clone(f.Payload)
				for i := range f.Payload {
					f.Payload[i] ^= 1
				}
			}
			return []forward.Frame{f}
		},
		"drops all": func(h *hostileRelay, _ membership.NodeID, f forward.Frame) []forward.Frame {
			if f.Kind == forward.Packets {
				h.note()
				return nil
			}
			return []forward.Frame{f}
		},
	}
}

func (h *hostileRelay) note() { h.once.Do(func() { fmt.Fprintln(os.Stderr, tampered) }) }

// newTamper returns the action of a hostile relay.
func newTamper(kind string) relay.Tamper {
	h := &hostileRelay{rng: rand.New(rand.NewPCG(22, 1))}
	action := tampers()[kind]
	return func(to membership.NodeID, f forward.Frame) []forward.Frame {
		if !tampering.Load() {
			return []forward.Frame{f}
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		return action(h, to, f)
	}
}

// TestHostileRelay: a relay drops, delays, repeats, alters or forges frames of others, or rewrites their addresses. All calls have the right
// results, as the packets are sent again, also over another path. Nodes count the packets that are lost.
func TestHostileRelay(t *testing.T) {
	t.Parallel()
	const ranks, hostile = 5, 1
	for _, kind := range []string{"drops", "delays", "repeats", "alters", "forges", "rewrites"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			workers, seed := startWithHostile(t, ranks, kind, hostile)
			mustSucceed(t, []result{workers[hostile].do(command{Do: "tamper"})})
			mustSucceed(t, runAll(workers, command{Do: "loop", Op: "all_to_all", N: 10_000, Rounds: 3}))
			mustSucceed(t, runAll(workers, command{Do: "check-more"}))
			if !strings.Contains(workers[hostile].log.String(), tampered) {
				t.Error("the hostile relay has not tampered with a frame")
			}
			wantLost(t, workers, seed, kind != "delays" && kind != "repeats")
		})
	}
}

// TestHostileRelays: all paths between two ranks pass relays that alter or drop all data. An operation between these ranks
// ends with an error that names both and the relays. That takes half a minute or more, so the worlds wait for it beside the tests
// that are not parallel: each test pauses after it has started its world.
func TestHostileRelays(t *testing.T) {
	for _, kind := range []string{"alters all", "drops all"} {
		t.Run(kind, func(t *testing.T) {
			workers, _ := startWithHostile(t, 4, kind, 1, 3)
			ids := runAll(workers, command{Do: "id"})
			const source, destination = 0, 2
			// The other pairs reach each other, and these two have a connection.
			mustSucceed(t, runAll(workers, command{Do: "loop", Op: "all_to_all", N: 10, Rounds: 1}))
			mustSucceed(t, []result{workers[1].do(command{Do: "tamper"}), workers[3].do(command{Do: "tamper"})})
			sending := workers[0].start(command{Do: "send", N: 100_000, Peer: 2, Tag: 1})
			receiving := workers[2].start(command{Do: "recv", N: 100_000, Peer: 0, Tag: 1})
			t.Parallel()
			named := 0
			for _, r := range []result{workers[source].await(sending), workers[destination].await(receiving)} {
				t.Logf("after %v: %v", r.Took, r.Failure)
				if r.Failure == nil || !r.Failure.PeerFailed {
					continue // A sender does not wait until the message has arrived.
				}
				relays := strings.Contains(r.Failure.Text, ids[1].Text) && strings.Contains(r.Failure.Text, ids[3].Text)
				if relays && strings.Contains(r.Failure.Text, ids[source].Text) && strings.Contains(r.Failure.Text, ids[destination].Text) {
					named++
				}
			}
			if named == 0 {
				t.Error("no error names the source, the destination and the relays")
			}
		})
	}
	t.Parallel()
}

// startWithHostile starts a world of the topology k-regular:2 with some hostile relays.
func startWithHostile(t *testing.T, ranks int, kind string, hostile ...int) (workers []*worker, seed nexar.Config) {
	t.Helper()
	c := newWorkerSet(t)
	addr := startLocalSeed(t, ranks, nexar.SeedConfig{Token: c.token}).Addr()
	for rank := range ranks {
		vars := []string{"NEXAR_TOPOLOGY=k-regular:2", "NEXAR_TRANSPORTS=tcp", "NEXAR_SEEDS=" + addr, "NEXAR_LISTEN=127.0.0.1:0", fmt.Sprint("NEXAR_RANK=", rank)}
		if slices.Contains(hostile, rank) {
			vars = append(vars, tamperEnv+"="+kind)
		}
		w := c.start(nil, fmt.Sprint("rank ", rank), vars...)
		w.rank = rank
		workers = append(workers, w)
	}
	mustSucceed(t, runAll(workers, command{Do: "join"}))
	return workers, nexar.Config{Seeds: []string{addr}, Token: c.token}
}

// wantLost checks that the nodes count the packets that are lost, in Node.Peers and in the answer to nexar status.
func wantLost(t *testing.T, workers []*worker, seed nexar.Config, areLost bool) {
	t.Helper()
	lost := uint64(0)
	for rank, r := range runAll(workers, command{Do: "peers"}) {
		wantPeers(t, rank, r, len(workers)-1)
		for _, p := range r.Peers {
			lost += p.LostPackets
		}
	}
	if areLost && lost == 0 {
		t.Error("the nodes count no lost packets")
	}
	state, err := nexar.QueryCluster(t.Context(), seed)
	if err != nil {
		t.Fatal(err)
	}
	var snapshots []trace.Snapshot
	for _, n := range state.Nodes {
		if n.Snapshot != nil {
			snapshots = append(snapshots, *n.Snapshot)
		}
	}
	var table strings.Builder
	if err := trace.WriteTable(&table, snapshots); err != nil {
		t.Fatal(err)
	}
	const want = "packets over relays that were lost and sent again: "
	if areLost && !strings.Contains(table.String(), want) {
		t.Errorf("got the table\n%s\nwant a line with %q", table.String(), want)
	}
}
