package nexartest

// Kill makes node i fail as kill -9 does: its packets are lost from now on, its context ends with
// [ErrKilled], and its error is ErrKilled. Its program runs until it returns, since Go cannot end a
// goroutine.
func (w *World) Kill(i int) {
	w.t.Helper()
	m := w.member(i)
	w.network.Crash(m.host)
	m.packets.resume()
	m.cancel(ErrKilled)
}

// Stop stops node i as SIGSTOP stops a process: it receives and sends nothing until [World.Resume],
// and keeps its connections. Packets that arrive meanwhile are queued. Unlike after SIGSTOP, its
// program and its timers continue, so it also loses its peers after [nexar.Config].HeartbeatTimeout.
func (w *World) Stop(i int) {
	w.t.Helper()
	w.member(i).packets.stop()
}

// Resume ends the effect of [World.Stop]. If the others have continued without the node, its
// [nexar.Node.Epochs] ends with [nexar.ErrNoQuorum].
func (w *World) Resume(i int) {
	w.t.Helper()
	w.member(i).packets.resume()
}

// CutOff separates the given nodes from all others and from the seed, as a broken switch does. They
// still reach each other. Packets in flight are lost.
func (w *World) CutOff(nodes ...int) {
	w.t.Helper()
	hosts := make([]string, len(nodes))
	for i, node := range nodes {
		hosts[i] = w.member(node).host
	}
	w.network.Partition(hosts...)
}

// Heal ends the effect of all calls of [World.CutOff].
func (w *World) Heal() { w.network.Heal() }

// SetLink changes the link between nodes a and b, in both directions. It replaces all settings of the
// link, and does not change the links to the seed.
func (w *World) SetLink(a, b int, l Link) {
	w.t.Helper()
	w.network.SetLink(w.member(a).host, w.member(b).host, l)
}

// Add starts a node that joins the world and then runs the program of [World.Start], and returns the
// number of the node. Call Start first. Add does not wait: the node becomes a member when the others
// call [nexar.Node.Reconfigure], or when it replaces a failed one.
func (w *World) Add() int {
	w.t.Helper()
	w.mu.Lock()
	program := w.program
	w.mu.Unlock()
	if program == nil {
		w.t.Fatal("nexartest: Add: call Start first")
	}
	i, m := w.newMember()
	w.running.Go(func() {
		if w.join(m, nil) {
			w.run(i, m)
		}
	})
	return i
}

// member returns node i.
func (w *World) member(i int) *member {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if i < 0 || i >= len(w.members) {
		w.t.Fatalf("nexartest: unknown node %d: the nodes are 0 to %d", i, len(w.members)-1)
	}
	return w.members[i]
}
