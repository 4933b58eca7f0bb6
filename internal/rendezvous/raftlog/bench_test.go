package raftlog

import (
	"fmt"
	"log/slog"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/nexar-go/nexar/consensus"
)

// BenchmarkKeep measures durable transactions of one entry of 300 bytes each.
func BenchmarkKeep(b *testing.B) {
	dir := b.TempDir()
	d, _, err := openDisk(&consensus.Config{Self: 1 << 40, Seeds: []uint64{1 << 40}, Dir: dir, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	defer d.close()
	hard := &raftpb.HardState{Term: proto.Uint64(1), Commit: proto.Uint64(1)}
	data := []byte(fmt.Sprintf("%300d", 1))
	index := uint64(1)
	for b.Loop() {
		index++
		e := &raftpb.Entry{Index: proto.Uint64(index), Term: proto.Uint64(1), Data: data}
		if err := d.keep(hard, []*raftpb.Entry{e}, nil); err != nil {
			b.Fatal(err)
		}
		if index%256 == 0 {
			snap := &raftpb.Snapshot{Data: data, Metadata: &raftpb.SnapshotMetadata{Index: proto.Uint64(index), Term: proto.Uint64(1), ConfState: &raftpb.ConfState{Voters: []uint64{1 << 40}}}}
			if err := d.compact(hard, snap, index-128); err != nil {
				b.Fatal(err)
			}
		}
	}
}
