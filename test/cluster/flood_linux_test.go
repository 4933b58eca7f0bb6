package cluster

import (
	"testing"
	"time"

	"github.com/nexar-go/nexar"
)

const (
	floodRate = 1000        // silent handshakes a second
	floodFrom = "127.0.0.2" // where they come from; all others are at 127.0.0.1
)

// TestFlood: while one address makes a thousand silent handshakes a second
// at the seed, and as many at a rank, nodes of another address join, the
// status is told, and ranks go on.
func TestFlood(t *testing.T) {
	c := newCrew(t)
	flooders := []*worker{c.hire(nil, "flooder of the seed"), c.hire(nil, "flooder of rank 0")}
	seed := c.hire(nil, "seed")
	r := seed.do(order{Do: "seed", N: 2, Addr: "127.0.0.1:0"})
	ok(t, []report{r})
	addr := r.Text
	const lasts = 12 * time.Second
	floods := []<-chan report{flooders[0].start(order{Do: "flood", What: "handshake", N: floodRate, For: lasts, Addr: addr, From: floodFrom})}
	time.Sleep(4 * time.Second) // it takes that long until the sender has prepared, and all places are taken

	port := freePort(t)
	team := []*worker{
		c.hire(nil, "rank 0", "NEXAR_SEEDS="+addr, "NEXAR_RANK=0", "NEXAR_LISTEN="+port),
		c.hire(nil, "rank 1", "NEXAR_SEEDS="+addr, "NEXAR_RANK=1", "NEXAR_LISTEN=127.0.0.1:0"),
	}
	ok(t, all(team, order{Do: "join"}))
	floods = append(floods, flooders[1].start(order{Do: "flood", What: "all", N: floodRate, For: lasts - 6*time.Second, Addr: port, From: floodFrom}))
	loops := make([]<-chan report, len(team))
	for i, w := range team {
		loops[i] = w.start(order{Do: "loop", What: "all_reduce", N: 1000, Sets: 3000})
	}
	for i := range 20 {
		s, err := nexar.QueryCluster(t.Context(), nexar.Config{Seeds: []string{addr}, Token: c.token})
		if err != nil || !s.Formed || len(s.Nodes) != 2 {
			t.Errorf("status %d: %v, %+v", i, err, s)
		}
		time.Sleep(100 * time.Millisecond)
	}
	ok(t, await(team, loops))
	ok(t, all(team, order{Do: "check"}))
	for i, r := range await(flooders, floods) {
		if r.Failure != nil || r.Rounds < floodRate {
			t.Errorf("%s: %v after %d handshakes", flooders[i].name, r.Failure, r.Rounds)
		}
	}
}
