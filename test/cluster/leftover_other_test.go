//go:build !linux

package cluster

import "testing"

// leftovers are checked on Linux only, where /proc lists the resources of processes.
type leftovers struct{}

func watchLeftovers(*testing.T) *leftovers { return &leftovers{} }

func (*leftovers) vars() []string                           { return nil }
func (*leftovers) openResources([]*worker) []map[string]int { return nil }
func (*leftovers) note([]*worker, bool)                     {}
func (*leftovers) wantGone(*worker)                         {}
func (*leftovers) wantReleased([]*worker, []map[string]int) {}
