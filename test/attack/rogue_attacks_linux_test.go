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
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport/quic"
)

// rogueAttacks are those of a seed that has been taken over.
func rogueAttacks() []attack {
	return []attack{
		{"rogue seed", "raft messages with a stolen peer token cause no panic and roll back no view; a seed that ends says why, and works when it is started again", 30 * time.Second, false, attackRogue},
	}
}

// councilSize is how many seeds agree.
const councilSize = 3

// A council is several seeds with state directories.
type council struct {
	*world
	dir       string
	peerToken string
	members   []*process
}

func newCouncil(t *testing.T, rng *rand.Rand, ranks int) *council {
	c := &council{world: newWorld(t, rng), dir: t.TempDir(), peerToken: nexar.NewToken(), members: make([]*process, councilSize)}
	for range councilSize {
		c.addrs = append(c.addrs, freePort(t))
	}
	for i := range c.members {
		c.start(i, ranks)
	}
	for _, p := range c.members {
		p.await(bound, "seed that listens", func(e event) bool { return e.Kind == evReady })
	}
	return c
}

// start starts a seed, for the first time or again.
func (c *council) start(i, ranks int) {
	c.t.Helper()
	args := arguments{
		World: ranks, Listen: c.addrs[i], Elastic: true, Peers: c.addrs, PeerToken: c.peerToken,
		StateDir: filepath.Join(c.dir, strconv.Itoa(i)),
	}
	c.members[i] = start(c.t, nil, "seed", fmt.Sprint("seed ", i), args, "NEXAR_CLUSTER_TOKEN="+c.token)
}

// raftID is the identity of a seed in raft, derived from its address as in internal/rendezvous.
func raftID(addr string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(addr))
	return (h.Sum64()>>33 | 1) << 32
}

// attackRogue kills a seed, and sends the others messages in its name.
func attackRogue(t *testing.T, rng *rand.Rand) {
	const ranks = 3
	c := newCouncil(t, rng, ranks)
	for range ranks {
		c.rank(nil, arguments{}, "NEXAR_LISTEN=127.0.0.1:0")
	}
	c.progress(1)
	rogue := rng.IntN(councilSize)
	c.members[rogue].signal(os.Kill)
	c.members[rogue].reap()
	sent := 0
	for round := range 12 {
		to := rng.IntN(councilSize)
		if to == rogue {
			to = (to + 1) % councilSize
		}
		sent += c.intrude(rogue, to, ranks, round)
		for i, p := range c.members {
			if i != rogue && p.hasEnded() {
				c.revive(i, ranks)
			}
		}
	}
	t.Logf("%d rogue messages", sent)
	if sent == 0 {
		t.Error("no seed has taken a message of the rogue")
	}
	c.progress(5)
	c.start(rogue, ranks)
	// The seeds still agree on views, and their next view follows the last one.
	c.ranks[0].signal(os.Kill)
	c.size(ranks - 1)
	c.rank(nil, arguments{}, "NEXAR_LISTEN=127.0.0.1:0")
	c.size(ranks)
	c.finish()
	for _, p := range c.members {
		p.reap()
	}
}

// hasEnded reports whether the output of the process has ended.
func (p *process) hasEnded() bool {
	_, over, _ := p.history()
	return over
}

// revive checks that a seed has ended with an error, and starts it again.
func (c *council) revive(i, ranks int) {
	c.t.Helper()
	p := c.members[i]
	p.harm()
	p.reap()
	text := p.log.String()
	for _, sign := range []string{"panic:", "goroutine ", "fatal error:"} {
		if strings.Contains(text, sign) {
			c.t.Fatalf("seed %d has ended with a trace:\n%s", i, p.log.Tail(4000))
		}
	}
	c.t.Logf("seed %d has ended: %s", i, p.log.Tail(300))
	c.start(i, ranks)
	c.members[i].await(bound, "seed that listens again", func(e event) bool { return e.Kind == evReady })
}

// intrude connects to a seed in the name of another and sends it messages. It
// returns how many.
func (c *council) intrude(as, to, ranks, round int) (sent int) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), bound)
	defer cancel()
	v, err := c.introduce(ctx, endpoint(c.t), as, to, ranks)
	if err != nil {
		// It may just have ended, or be busy with another conn.
		c.t.Logf("seed %d does not take the rogue: %v", to, err)
		return 0
	}
	defer v.conn.Close()
	for range 20 {
		data := c.message(as, to, round)
		for more := true; more; {
			part := data[:min(len(data), wire.LogBytesMax)]
			data = data[len(part):]
			more = len(data) > 0
			if v.say(wire.JoinLog{More: more, Data: part}) != nil {
				return sent
			}
		}
		sent++
	}
	time.Sleep(200 * time.Millisecond)
	return sent
}

// introduce connects to a seed as another one does, with both tokens.
func (c *council) introduce(ctx context.Context, end *quic.Endpoint, as, to, ranks int) (*seedClient, error) {
	w := &identified{world: c.world, seedAddr: c.addrs[to]}
	v, err := w.knock(ctx, end)
	if err != nil {
		return nil, err
	}
	token, err := pki.ParseToken(c.peerToken)
	if err != nil {
		return nil, err
	}
	self := wire.JoinSeedHello{Seed: raftID(c.addrs[as]), World: uint32(ranks)}
	if self.Proof, err = token.Proof(pki.CallingPeerRole, v.conn.ConnectionState()); err != nil {
		return nil, err
	}
	m, err := v.ask(self)
	if _, ok := m.(wire.JoinSeedHello); err != nil || !ok {
		v.conn.Close()
		return nil, fmt.Errorf("it answers %#v, %v, want a JoinSeedHello", m, err)
	}
	return v, nil
}

// message is a raft message that no seed sends, or that none may send now.
func (c *council) message(as, to, round int) []byte {
	rng := c.rng
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
		From: proto.Uint64(raftID(c.addrs[as])), To: proto.Uint64(raftID(c.addrs[to])),
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
			Metadata: &raftpb.SnapshotMetadata{Index: pick(), Term: pick(), ConfState: &raftpb.ConfState{Voters: []uint64{rng.Uint64(), raftID(c.addrs[to])}}},
		}
	case 4: // signs of life of a leader that does not exist
		m.Type = raftpb.MsgHeartbeat.Enum()
	case 5: // long garbage
		return junk(4 << 20)
	}
	b, err := proto.Marshal(m)
	if err != nil {
		c.t.Fatal(err)
	}
	return b
}
