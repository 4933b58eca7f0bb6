package node

import (
	"context"
	"errors"
	"log/slog"
	"math"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/recorder"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
	"github.com/nexar-go/nexar/transport/quic"
)

// askTimeout bounds Status and Try.
const askTimeout = 20 * time.Second

// Status returns the state of a cluster and of all its nodes, from the first seed that answers.
// This process does not join.
func Status(ctx context.Context, seeds []string, token pki.Token, use Transports, log *slog.Logger, q wire.JoinStatusRequest) (c trace.Cluster, err error) {
	s, err := openSockets(ctx, ":0", nil, use, quic.Config{Log: log, Heartbeat: -1})
	if err != nil {
		return c, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	d := client.Seeds{
		Addrs: seeds, Timeout: askTimeout, Attempt: askTimeout * 2 / 5, Log: log, Dial: s.dialSeed,
	}
	r, err := d.Status(ctx, token, q)
	if err != nil {
		return c, err
	}
	c = trace.Cluster{
		Time: time.Now(), Formed: r.Formed, Epoch: r.Epoch,
		World: int(r.World), Joined: int(r.Joined), Waiting: int(r.Waiting),
		Nodes:    []trace.Node{}, // an empty list in JSON, not null
		SeedTime: time.Unix(0, int64(min(r.Asked, math.MaxInt64))), Changes: recorder.Changes(r.Changes),
	}
	for _, n := range r.Nodes {
		recorder.AddNode(&c, trace.Node{
			Rank: int(n.Rank), Node: membership.NodeID(n.ID).String(), Name: n.Name, Addr: n.Addr, Missing: n.Missing,
			Silent: time.Duration(min(n.Silent, math.MaxInt64)),
		}, n.Trace, time.Duration(min(n.Took, math.MaxInt64)))
	}
	return c, nil
}
