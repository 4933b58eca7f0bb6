package nexar

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/device"
)

// TestZeroHandle: a zero Handle is done, and Wait returns an error.
func TestZeroHandle(t *testing.T) {
	returns(t, "Handle", func() {
		h := new(Handle)
		<-h.Done()
		if err := h.Wait(); err == nil || !strings.Contains(err.Error(), "not returned by a Start function") {
			t.Errorf("Wait: error %v, want one about a Handle that no Start function returned", err)
		}
		if s := h.Status(); s != (Status{}) {
			t.Errorf("Status: %+v, want none", s)
		}
		if err := WaitAll(nil, h); err == nil {
			t.Error("WaitAll: no error")
		}
	})
}

// TestZeroValues: methods of zero values return or panic, and do not block.
func TestZeroValues(t *testing.T) {
	ctx := context.Background()
	x := []float32{1}
	region := device.Region{}
	for name, call := range map[string]func(){
		"Comm.Barrier":       func() { _ = new(Comm).Barrier(ctx) },
		"Comm.StartBarrier":  func() { _ = new(Comm).StartBarrier(ctx).Wait() },
		"Comm.Call":          func() { _, _ = new(Comm).Call(ctx, 0, "f", nil) },
		"Comm.Register":      func() { new(Comm).Register("f", nil) },
		"Comm.Close":         func() { _ = new(Comm).Close() },
		"Comm.Deterministic": func() { _ = new(Comm).Deterministic() },
		"Comm.Split":         func() { _, _ = new(Comm).Split(ctx, 0, 0) },
		"Comm.Sub":           func() { _, _ = new(Comm).Sub(ctx, []int{0}) },
		"Comm.Dup":           func() { _, _ = new(Comm).Dup(ctx) },
		"Comm.Exclude":       func() { _, _ = new(Comm).Exclude(ctx, nil) },
		"Comm.Include":       func() { _, _ = new(Comm).Include(ctx) },
		"Comm.Err":           func() { _ = new(Comm).Err() },
		"Comm.Epoch":         func() { _ = new(Comm).Epoch() },
		"Comm.Trace":         func() { _ = new(Comm).Trace() },
		"Comm.Change":        func() { _ = new(Comm).Change() },
		"Comm.SetAlgorithms": func() { _ = new(Comm).SetAlgorithms() },
		"Comm.Algorithms":    func() { _, _ = new(Comm).Algorithms("all_reduce", 8) },
		"Comm.WorldRank":     func() { _ = new(Comm).WorldRank(0) },
		"Comm.LocalRanks":    func() { _ = new(Comm).LocalRanks() },
		"Comm.LocalRank":     func() { _ = new(Comm).LocalRank() },
		"Comm.SplitHost":     func() { _, _ = new(Comm).SplitHost(ctx) },
		"Comm.MatchedProbe":  func() { _, _ = new(Comm).MatchedProbe(ctx, 0, 0) },
		"RecvAlloc":          func() { _, _, _ = RecvAlloc[byte](ctx, new(Comm), 0, 0) },
		"RecvMatched":        func() { _, _ = RecvMatched(ctx, new(Message), x) },
		"Message.Source":     func() { _ = new(Message).Source() },
		"Comm.Done":          func() { <-new(Comm).Done() },
		"Comm.WithStream":    func() { _ = new(Comm).WithStream(nil).AllReduce(ctx, device.Float32, region, Sum) },
		"AllReduce":          func() { _ = AllReduce(ctx, new(Comm), x, Sum) },
		"StartAllReduce":     func() { _ = StartAllReduce(ctx, new(Comm), x, Sum).Wait() },
		"Send":               func() { _ = Send(ctx, new(Comm), x, 0, 0) },
		"Recv":               func() { _, _ = Recv(ctx, new(Comm), x, 0, 0) },
		"StartRecv":          func() { _ = StartRecv(ctx, new(Comm), x, 0, 0).Wait() },
		"Sync":               func() { _ = Sync(ctx, new(Comm), new(int)) },
		"DeviceComm":         func() { _ = DeviceComm{}.Send(ctx, device.Float32, 0, 0, region) },
		"Func.Call":          func() { _, _ = Func[int, int]{}.Call(ctx, new(Comm), 0, 1) },

		"Node.Epochs": func() {
			for range new(Node).Epochs(ctx) {
				break
			}
		},
		"Node.Failures": func() {
			for range new(Node).Failures(ctx) {
				break
			}
		},
		"Node.Reconfigure": func() { _, _ = new(Node).Reconfigure(ctx) },
		"Node.Leave":       func() { _ = new(Node).Leave(ctx) },
		"Node.Close":       func() { _ = new(Node).Close() },
		"Node.ID":          func() { _ = new(Node).ID() },
		"Node.Neighbors":   func() { _ = new(Node).Neighbors() },
		"Node.Peers":       func() { _ = new(Node).Peers() },
		"Node.Trace":       func() { _ = new(Node).Trace() },
		"Node.World":       func() { _ = new(Node).World() },

		"Seed.Addr":  func() { _ = new(Seed).Addr() },
		"Seed.Wait":  func() { _ = new(Seed).Wait(ctx) },
		"Seed.Err":   func() { _ = new(Seed).Err() },
		"Seed.Done":  func() { <-new(Seed).Done() },
		"Seed.Close": func() { _ = new(Seed).Close() },
	} {
		t.Run(name, func(t *testing.T) { returns(t, name, call) })
	}
}

// returns fails the test if f neither returns nor panics.
func returns(t *testing.T, name string, f func()) {
	t.Helper()
	done := make(chan any, 1)
	go func() {
		defer func() { done <- recover() }()
		f()
	}()
	select {
	case p := <-done:
		if text := fmt.Sprint(p); p != nil {
			t.Logf("%s panics: %s", name, text)
		}
	case <-time.After(patience):
		t.Fatalf("%s does not return", name)
	}
}
