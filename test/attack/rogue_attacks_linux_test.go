package attack

import (
	"context"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/testhost"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport/quic"
)

// rogueAttacks are attacks by a compromised seed.
func rogueAttacks() []attack {
	return []attack{
		{"rogue seed", "raft messages with a stolen peer token cause no panic and roll back no view; a seed that ends logs the reason, and works after a restart", 30 * time.Second, false, attackRogue},
	}
}

// groupSeeds is the number of replicated seeds.
const groupSeeds = 3

// A seedGroup is a world with replicated seeds, which have state directories.
type seedGroup struct {
	*world
	dir       string
	peerToken string
	seeds     []*process
}

func newSeedGroup(t *testing.T, rng *rand.Rand, ranks int) *seedGroup {
	g := &seedGroup{world: newWorld(t, rng), dir: t.TempDir(), peerToken: nexar.NewToken(), seeds: make([]*process, groupSeeds)}
	for range groupSeeds {
		g.addrs = append(g.addrs, testhost.FreePort(t))
	}
	for i := range g.seeds {
		g.startMember(i, ranks)
	}
	for _, p := range g.seeds {
		p.await(bound, "seed that listens", func(e event) bool { return e.Kind == evReady })
	}
	return g
}

// startMember starts or restarts a seed.
func (g *seedGroup) startMember(i, ranks int) {
	g.t.Helper()
	args := arguments{
		World: ranks, Listen: g.addrs[i], Elastic: true, Peers: g.addrs, PeerToken: g.peerToken,
		StateDir: filepath.Join(g.dir, strconv.Itoa(i)),
	}
	g.seeds[i] = start(g.t, nil, "seed", fmt.Sprint("seed ", i), args, "NEXAR_CLUSTER_TOKEN="+g.token)
}

// raftID is the identity of a seed in raft, derived from its address as in internal/rendezvous.
func raftID(addr string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(addr))
	return (h.Sum64()>>33 | 1) << 32
}

// attackRogue kills a seed and sends messages in its name to the others.
func attackRogue(t *testing.T, rng *rand.Rand) {
	const ranks = 3
	g := newSeedGroup(t, rng, ranks)
	for range ranks {
		g.startRank(nil, arguments{}, "NEXAR_LISTEN=127.0.0.1:0")
	}
	g.waitForSteps(1)
	rogue := rng.IntN(groupSeeds)
	g.seeds[rogue].signal(os.Kill)
	g.seeds[rogue].reap()
	sent := 0
	for round := range 12 {
		to := rng.IntN(groupSeeds)
		if to == rogue {
			to = (to + 1) % groupSeeds
		}
		sent += g.sendAs(rogue, to, ranks, round)
		for i, p := range g.seeds {
			if i != rogue && p.hasEnded() {
				g.restart(i, ranks)
			}
		}
	}
	t.Logf("%d rogue messages", sent)
	if sent == 0 {
		t.Error("no seed has accepted a message of the rogue seed")
	}
	g.waitForSteps(5)
	g.startMember(rogue, ranks)
	// The seeds still agree on views, and their next view follows the last one.
	g.ranks[0].signal(os.Kill)
	g.waitForSize(ranks - 1)
	g.startRank(nil, arguments{}, "NEXAR_LISTEN=127.0.0.1:0")
	g.waitForSize(ranks)
	g.finish()
	for _, p := range g.seeds {
		p.reap()
	}
}

// hasEnded reports whether the output of the process has ended.
func (p *process) hasEnded() bool {
	_, over, _ := p.eventsSoFar()
	return over
}

// restart checks that a seed has ended with an error and no stack trace, and restarts it.
func (g *seedGroup) restart(i, ranks int) {
	g.t.Helper()
	p := g.seeds[i]
	p.markVictim()
	p.reap()
	text := p.log.String()
	for _, sign := range []string{"panic:", "goroutine ", "fatal error:"} {
		if strings.Contains(text, sign) {
			g.t.Fatalf("seed %d has ended with a stack trace:\n%s", i, p.log.Tail(4000))
		}
	}
	g.t.Logf("seed %d has ended: %s", i, p.log.Tail(300))
	g.startMember(i, ranks)
	g.seeds[i].await(bound, "seed that listens again", func(e event) bool { return e.Kind == evReady })
}

// sendAs connects to a seed in the name of another, sends random messages, and returns their
// number.
func (g *seedGroup) sendAs(as, to, ranks, round int) (sent int) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(g.t.Context(), bound)
	defer cancel()
	c, err := g.connectAs(ctx, endpoint(g.t), as, to, ranks)
	if err != nil {
		// The seed may have ended, or may still have the previous connection.
		g.t.Logf("seed %d does not accept the rogue seed: %v", to, err)
		return 0
	}
	defer c.conn.Close()
	for range 20 {
		data := g.randomMessage(as, to, round)
		for more := true; more; {
			part := data[:min(len(data), wire.LogBytesMax)]
			data = data[len(part):]
			more = len(data) > 0
			if c.send(wire.JoinLog{More: more, Data: part}) != nil {
				return sent
			}
		}
		sent++
	}
	time.Sleep(200 * time.Millisecond)
	return sent
}

// connectAs connects to a seed in the name of another, with both tokens.
func (g *seedGroup) connectAs(ctx context.Context, end *quic.Endpoint, as, to, ranks int) (*seedClient, error) {
	w := &identityWorld{world: g.world, seedAddr: g.addrs[to]}
	c, err := w.connect(ctx, end)
	if err != nil {
		return nil, err
	}
	token, err := pki.ParseToken(g.peerToken)
	if err != nil {
		return nil, err
	}
	self := wire.JoinSeedHello{Seed: raftID(g.addrs[as]), World: uint32(ranks)}
	if self.Proof, err = token.Proof(pki.CallingPeerRole, c.conn.ConnectionState()); err != nil {
		return nil, err
	}
	m, err := c.ask(self)
	if _, ok := m.(wire.JoinSeedHello); err != nil || !ok {
		c.conn.Close()
		return nil, fmt.Errorf("the seed answers %#v, %v, want a JoinSeedHello", m, err)
	}
	return c, nil
}

// randomMessage returns a raft message that is invalid, or invalid at this moment.
func (g *seedGroup) randomMessage(as, to, round int) []byte {
	rng := g.rng
	far := []uint64{0, 1, 2, 5, 1000, 1 << 40, math.MaxUint64 - 1, math.MaxUint64}
	pick := func() *uint64 { return proto.Uint64(far[rng.IntN(len(far))]) }
	junk := func(most int) []byte {
		b := make([]byte, rng.IntN(most))
		for i := range b {
			b[i] = byte(rng.Int())
		}
		return b
	}
	m := &raftpb.Message{
		Type: raftpb.MessageType(rng.IntN(len(raftpb.MessageType_name) + 3)).Enum(),
		From: proto.Uint64(raftID(g.addrs[as])), To: proto.Uint64(raftID(g.addrs[to])),
		Term: pick(), LogTerm: pick(), Index: pick(), Commit: pick(), Vote: pick(), RejectHint: pick(), Reject: proto.Bool(rng.IntN(2) == 0),
	}
	switch round % 6 {
	case 0: // every kind, with random numbers
	case 1: // votes for and by unknown seeds
		m.Type = []raftpb.MessageType{raftpb.MsgVote, raftpb.MsgPreVote, raftpb.MsgVoteResp, raftpb.MsgPreVoteResp}[rng.IntN(4)].Enum()
		if rng.IntN(2) == 0 {
			m.From = proto.Uint64(rng.Uint64())
		}
	case 2: // entries that contradict committed ones
		m.Type = raftpb.MsgApp.Enum()
		for i := range uint64(1 + rng.IntN(4)) {
			m.Entries = append(m.Entries, &raftpb.Entry{
				Type: raftpb.EntryType(rng.IntN(3)).Enum(), Term: m.Term, Index: proto.Uint64(m.GetIndex() + 1 + i), Data: junk(200),
			})
		}
	case 3: // snapshots that rewrite committed entries
		m.Type = raftpb.MsgSnap.Enum()
		m.Snapshot = &raftpb.Snapshot{
			Data:     junk(1000),
			Metadata: &raftpb.SnapshotMetadata{Index: pick(), Term: pick(), ConfState: &raftpb.ConfState{Voters: []uint64{rng.Uint64(), raftID(g.addrs[to])}}},
		}
	case 4: // heartbeats of a leader that does not exist
		m.Type = raftpb.MsgHeartbeat.Enum()
	case 5: // long garbage
		return junk(4 << 20)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		g.t.Fatal(err)
	}
	return b
}
