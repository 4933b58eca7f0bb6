package api

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/device"
)

// TestZeroHandle: a zero Handle is done, and Wait returns an error.
func TestZeroHandle(t *testing.T) {
	returns(t, "Handle", func() {
		h := new(nexar.Handle)
		<-h.Done()
		if err := h.Wait(); err == nil || !strings.Contains(err.Error(), "not returned by a Start function") {
			t.Errorf("Wait: error %v, want one about a Handle that no Start function returned", err)
		}
		if s := h.Status(); s != (nexar.Status{}) {
			t.Errorf("Status: %+v, want none", s)
		}
		if err := nexar.WaitAll(nil, h); err == nil {
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
		"Comm.Barrier":       func() { _ = new(nexar.Comm).Barrier(ctx) },
		"Comm.StartBarrier":  func() { _ = new(nexar.Comm).StartBarrier(ctx).Wait() },
		"Comm.Call":          func() { _, _ = new(nexar.Comm).Call(ctx, 0, "f", nil) },
		"Comm.Register":      func() { new(nexar.Comm).Register("f", nil) },
		"Comm.Close":         func() { _ = new(nexar.Comm).Close() },
		"Comm.Deterministic": func() { _ = new(nexar.Comm).Deterministic() },
		"Comm.Split":         func() { _, _ = new(nexar.Comm).Split(ctx, 0, 0) },
		"Comm.Sub":           func() { _, _ = new(nexar.Comm).Sub(ctx, []int{0}) },
		"Comm.Dup":           func() { _, _ = new(nexar.Comm).Dup(ctx) },
		"Comm.Exclude":       func() { _, _ = new(nexar.Comm).Exclude(ctx, nil) },
		"Comm.Include":       func() { _, _ = new(nexar.Comm).Include(ctx) },
		"Comm.Err":           func() { _ = new(nexar.Comm).Err() },
		"Comm.Epoch":         func() { _ = new(nexar.Comm).Epoch() },
		"Comm.Trace":         func() { _ = new(nexar.Comm).Trace() },
		"Comm.Change":        func() { _ = new(nexar.Comm).Change() },
		"Comm.SetAlgorithms": func() { _ = new(nexar.Comm).SetAlgorithms() },
		"Comm.Algorithms":    func() { _, _ = new(nexar.Comm).Algorithms("all_reduce", 8) },
		"Comm.WorldRank":     func() { _ = new(nexar.Comm).WorldRank(0) },
		"Comm.LocalRanks":    func() { _ = new(nexar.Comm).LocalRanks() },
		"Comm.LocalRank":     func() { _ = new(nexar.Comm).LocalRank() },
		"Comm.SplitHost":     func() { _, _ = new(nexar.Comm).SplitHost(ctx) },
		"Comm.MatchedProbe":  func() { _, _ = new(nexar.Comm).MatchedProbe(ctx, 0, 0) },
		"RecvAlloc":          func() { _, _, _ = nexar.RecvAlloc[byte](ctx, new(nexar.Comm), 0, 0) },
		"RecvMatched":        func() { _, _ = nexar.RecvMatched(ctx, new(nexar.Message), x) },
		"Message.Source":     func() { _ = new(nexar.Message).Source() },
		"Comm.Done":          func() { <-new(nexar.Comm).Done() },
		"Comm.WithStream":    func() { _ = new(nexar.Comm).WithStream(nil).AllReduce(ctx, device.Float32, region, nexar.Sum) },
		"AllReduce":          func() { _ = nexar.AllReduce(ctx, new(nexar.Comm), x, nexar.Sum) },
		"StartAllReduce":     func() { _ = nexar.StartAllReduce(ctx, new(nexar.Comm), x, nexar.Sum).Wait() },
		"Send":               func() { _ = nexar.Send(ctx, new(nexar.Comm), x, 0, 0) },
		"Recv":               func() { _, _ = nexar.Recv(ctx, new(nexar.Comm), x, 0, 0) },
		"StartRecv":          func() { _ = nexar.StartRecv(ctx, new(nexar.Comm), x, 0, 0).Wait() },
		"Sync":               func() { _ = nexar.Sync(ctx, new(nexar.Comm), new(int)) },
		"DeviceComm":         func() { _ = nexar.DeviceComm{}.Send(ctx, device.Float32, 0, 0, region) },
		"Func.Call":          func() { _, _ = nexar.Func[int, int]{}.Call(ctx, new(nexar.Comm), 0, 1) },

		"Node.Epochs": func() {
			for range new(nexar.Node).Epochs(ctx) {
				break
			}
		},
		"Node.Failures": func() {
			for range new(nexar.Node).Failures(ctx) {
				break
			}
		},
		"Node.Reconfigure": func() { _, _ = new(nexar.Node).Reconfigure(ctx) },
		"Node.Leave":       func() { _ = new(nexar.Node).Leave(ctx) },
		"Node.Close":       func() { _ = new(nexar.Node).Close() },
		"Node.ID":          func() { _ = new(nexar.Node).ID() },
		"Node.Neighbors":   func() { _ = new(nexar.Node).Neighbors() },
		"Node.Peers":       func() { _ = new(nexar.Node).Peers() },
		"Node.Trace":       func() { _ = new(nexar.Node).Trace() },
		"Node.World":       func() { _ = new(nexar.Node).World() },

		"Seed.Addr":  func() { _ = new(nexar.Seed).Addr() },
		"Seed.Wait":  func() { _ = new(nexar.Seed).Wait(ctx) },
		"Seed.Err":   func() { _ = new(nexar.Seed).Err() },
		"Seed.Done":  func() { <-new(nexar.Seed).Done() },
		"Seed.Close": func() { _ = new(nexar.Seed).Close() },
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
	case <-time.After(time.Minute):
		t.Fatalf("%s does not return", name)
	}
}
