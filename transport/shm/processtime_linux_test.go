package shm

import "testing"

// TestProcessTime: a conn knows the processor time of the process of its peer, which grows while the process runs.
func TestProcessTime(t *testing.T) {
	cluster := uniqueCluster()
	a, b := newNode(t, Config{Cluster: cluster, Node: "a"}), newNode(t, Config{Cluster: cluster, Node: "b"})
	c, err := a.Dial(t.Context(), b.Addr(), b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	timer := c.(*conn)
	before, ok := timer.ProcessTime()
	if !ok || before <= 0 {
		t.Fatalf("got %v, %v, want the time of this process", before, ok)
	}
	grown := false
	for range 1 << 20 { // each takes some processor time itself
		if now, ok := timer.ProcessTime(); !ok || now < before {
			t.Fatalf("got %v, %v after %v", now, ok, before)
		} else if grown = now > before; grown {
			break
		}
	}
	if !grown {
		t.Error("the time does not grow")
	}
	for _, pid := range []int32{0, -1, 1<<22 + 1} { // the last one is above the maximum of Linux
		timer.pid = pid
		if used, ok := timer.ProcessTime(); ok {
			t.Errorf("process %d has used %v", pid, used)
		}
	}
}
