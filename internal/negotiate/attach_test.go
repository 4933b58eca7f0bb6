package negotiate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/mesh"
	"github.com/nexar-go/nexar/transport"
)

// attach lets a member attach areas, or link itself to the other nodes.
func attach(p *member, g *mesh.Group) {
	for _, n := range g.Nodes {
		p.Names = append(p.Names, n.ID.String())
	}
	p.Host, _ = g.HostMemory()
	p.LinkAll = func(ctx context.Context) (cost.PathClasses, error) { return p.Classes, g.LinkHost(ctx) }
}

// linked returns the number of nodes that a node is linked to. Over a link that has carried a frame both nodes are; the mesh describes the
// connection in Paths later, when the goroutine that has made it goes on.
func (w *world) linked(node int) (n int) {
	for peer, l := range w.links[node] {
		if peer != node && !l.IsPending() {
			n++
		}
	}
	return n
}

// TestAttachWithoutLinks: many ranks share memory, although each is linked to few others, and a communicator gets a
// part that the one before has used.
func TestAttachWithoutLinks(t *testing.T) {
	const most = 24 // twelve that watch each other, and the partners of the negotiation
	n, rounds := 40, uint64(3)
	if testing.Short() {
		n, rounds = 28, 2
	}
	w := formWorld(t, true, slices.Repeat([]int{AreaSize()}, n)...)
	part := NoPart
	for id := range rounds {
		members := w.run(t, 7+id, ranks(n), transport.ClassMemory)
		requireSame(t, members, true)
		if part != NoPart && members[0].part != part {
			t.Errorf("part %d, want %d again", members[0].part, part)
		}
		part = members[0].part
		sumAll(t, members)
		closeAll(members)
	}
	for node := range n {
		if got := w.linked(node); got > most {
			t.Errorf("node %d is linked to %d others, want at most %d", node, got, most)
		}
	}
}

// errUnseen is the error of brokenHost.
var errUnseen = errors.New("another PID namespace")

// A brokenHost cannot attach the areas of one node.
type brokenHost struct {
	transport.HostMemory
	unseen string
}

func (h brokenHost) AttachAreas(peer string, key uint64) (transport.Areas, error) {
	if peer == h.unseen {
		return nil, errUnseen
	}
	return h.HostMemory.AttachAreas(peer, key)
}

// TestAttachFails: if one rank cannot attach the areas of another, or has no areas to attach, all ranks link themselves to
// each other and share memory over the links. The log names the rank, the node and the reason.
func TestAttachFails(t *testing.T) {
	const n, victim, unseen = 20, 7, 8
	for name, broken := range map[string]bool{"a rank is not seen": true, "a rank without HostMemory": false} {
		t.Run(name, func(t *testing.T) {
			w := formWorld(t, true, slices.Repeat([]int{AreaSize()}, n)...)
			var log logBuffer
			members := make([]*member, n)
			for rank := range members {
				members[rank] = w.member(7, ranks(n), rank, transport.ClassMemory, slog.New(slog.DiscardHandler))
			}
			victim := members[victim]
			victim.Log = slog.New(slog.NewTextHandler(&log, nil))
			if broken {
				victim.Host = brokenHost{victim.Host, victim.Names[unseen]}
			} else {
				victim.Host = nil
			}
			runAll(t, members)
			requireSame(t, members, true)
			sumAll(t, members)
			for node := range n {
				if got := w.linked(node); got != n-1 {
					t.Errorf("node %d is linked to %d others, want all", node, got)
				}
			}
			text := log.lines.String()
			for _, want := range []string{fmt.Sprint("rank=", unseen), "node=" + victim.Names[unseen], errUnseen.Error()} {
				if broken && !strings.Contains(text, want) {
					t.Errorf("the log lacks %q: %s", want, text)
				}
			}
		})
	}
}

// TestAttachDiffers: ranks with areas that differ in length share no memory.
func TestAttachDiffers(t *testing.T) {
	w := formWorld(t, true, AreaSize(), AreaSize(), AreaSize()/2, AreaSize())
	members := w.run(t, 7, ranks(4), transport.ClassMemory)
	requireSame(t, members, false)
	sumAll(t, members)
}
