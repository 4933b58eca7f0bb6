package cluster

import (
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/testhost"
)

const (
	floodRate = 1000        // silent handshakes a second
	floodFrom = "127.0.0.2" // their source; all other processes are at 127.0.0.1
)

// TestFlood makes a thousand silent handshakes a second from one address at the seed, and as many
// at a rank. Meanwhile nodes of another address join, the seed answers status queries, and ranks
// exchange data.
func TestFlood(t *testing.T) {
	c := newWorkerSet(t)
	flooders := []*worker{c.start(nil, "flooder of the seed"), c.start(nil, "flooder of rank 0")}
	seed := c.start(nil, "seed")
	r := seed.do(command{Do: "seed", N: 2, Addr: "127.0.0.1:0"})
	mustSucceed(t, []result{r})
	addr := r.Text
	const lasts = 12 * time.Second
	floods := []<-chan result{flooders[0].start(command{Do: "flood", Op: "handshake", N: floodRate, Duration: lasts, Addr: addr, From: floodFrom})}
	time.Sleep(4 * time.Second) // until the flooder has captured its packets and all places for unproved connections are taken

	port := testhost.FreePort(t)
	workers := []*worker{
		c.start(nil, "rank 0", "NEXAR_SEEDS="+addr, "NEXAR_RANK=0", "NEXAR_LISTEN="+port),
		c.start(nil, "rank 1", "NEXAR_SEEDS="+addr, "NEXAR_RANK=1", "NEXAR_LISTEN=127.0.0.1:0"),
	}
	mustSucceed(t, runAll(workers, command{Do: "join"}))
	floods = append(floods, flooders[1].start(command{Do: "flood", Op: "all", N: floodRate, Duration: lasts - 6*time.Second, Addr: port, From: floodFrom}))
	loops := make([]<-chan result, len(workers))
	for i, w := range workers {
		loops[i] = w.start(command{Do: "loop", Op: "all_reduce", N: 1000, Rounds: 3000})
	}
	for i := range 20 {
		s, err := nexar.QueryCluster(t.Context(), nexar.Config{Seeds: []string{addr}, Token: c.token})
		if err != nil || !s.Formed || len(s.Nodes) != 2 {
			t.Errorf("status %d: %v, %+v", i, err, s)
		}
		time.Sleep(100 * time.Millisecond)
	}
	mustSucceed(t, awaitAll(workers, loops))
	mustSucceed(t, runAll(workers, command{Do: "check"}))
	for i, r := range awaitAll(flooders, floods) {
		if r.Failure != nil || r.Rounds < floodRate {
			t.Errorf("%s: %v after %d handshakes", flooders[i].name, r.Failure, r.Rounds)
		}
	}
}
