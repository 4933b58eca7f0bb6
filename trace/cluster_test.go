package trace

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
)

// cluster returns a formed cluster of four nodes. Nodes without a snapshot have the reason.
func cluster(reason string, snapshots ...Snapshot) *Cluster {
	c := &Cluster{Time: at(10), Formed: true, Epoch: 1, World: 4, Joined: 4}
	for rank := range 4 {
		n := Node{Rank: rank, Node: of(rank).Node, Name: "host:" + string(rune('1'+rank)), Addr: "10.0.0.1:7000", Missing: reason}
		for _, s := range snapshots {
			if s.Rank == rank {
				n.Missing, n.Snapshot = "", &s
			}
		}
		c.Nodes = append(c.Nodes, n)
	}
	return c
}

func checkCluster(t *testing.T, c *Cluster, want ...string) {
	t.Helper()
	var b strings.Builder
	if _, err := c.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(b.String()) {
		got = append(got, strings.Join(strings.Fields(line), " "))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestCluster(t *testing.T) {
	in := late(reduction(7, 7), 2)
	checkCluster(t, cluster("has not answered within 2s", of(0, in), of(1, in), of(3, in)),
		"Ranks 0, 1 and 3 wait in all_reduce #7 for rank 2, which has not answered within 2s",
		"epoch 1, 3 of 4 ranks heard of",
		"RANK NODE IN COMM FOR ROUND WAITS FOR",
		"0 aaaaaaaa all_reduce #7 (2 × float32, sum) 1 3s 1/2 rank 2",
		"1 bbbbbbbb all_reduce #7 (2 × float32, sum) 1 3s 1/2 rank 2",
		"3 dddddddd all_reduce #7 (2 × float32, sum) 1 3s 1/2 rank 2",
		"RANK NODE ADDRESS NO SNAPSHOT",
		"2 host:3 10.0.0.1:7000 has not answered within 2s",
	)
	gathering := &Cluster{World: 4, Joined: 1}
	gathering.Nodes = []Node{{Rank: -1, Node: of(1).Node, Addr: "10.0.0.1:7000", Missing: "has not joined the world yet"}}
	checkCluster(t, gathering,
		"The world forms: 1 of 4 has joined",
		"RANK NODE ADDRESS NO SNAPSHOT",
		"- bbbbbbbb 10.0.0.1:7000 has not joined the world yet",
	)
}

// TestClusterOfTwoEpochs: nodes that are not in the newest epoch are listed.
func TestClusterOfTwoEpochs(t *testing.T) {
	behind := of(1, late(reduction(7, 7), 2))
	ahead := of(0)
	ahead.Epoch = 2
	c := &Cluster{Formed: true, Epoch: 2, World: 4, Joined: 4}
	c.Nodes = []Node{
		{Rank: 0, Node: ahead.Node, Snapshot: &ahead},
		{Rank: 2, Node: behind.Node, Name: "b:1", Addr: "b:7000", Snapshot: &behind}, // rank 1 before
	}
	checkCluster(t, c,
		"Rank 2 on host b has not reached epoch 2",
		"epoch 2, 1 of 4 ranks heard of",
		"RANK NODE IN COMM FOR ROUND WAITS FOR",
		"0 aaaaaaaa nothing by now",
		"RANK NODE ADDRESS NO SNAPSHOT",
		"2 b:1 b:7000 is still in epoch 1",
	)
}

func TestClusterJSON(t *testing.T) {
	want := cluster("has not answered within 2s", of(0, late(reduction(7, 7), 2)))
	b, err := json.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	var got Cluster
	if err := json.Unmarshal(b, &got); err != nil || !reflect.DeepEqual(&got, want) {
		t.Errorf("read %+v, %v; want %+v", got, err, want)
	}
}
