package raftlog

import (
	"fmt"
	"testing"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// BenchmarkSave measures durable changes of logs with snapshots of different lengths and 200 entries
// of 250 bytes. A snapshot has about 250 bytes for each node of the world.
func BenchmarkSave(b *testing.B) {
	for _, nodes := range []int{8, 256, 1024} {
		b.Run(fmt.Sprintf("nodes=%d", nodes), func(b *testing.B) {
			cfg := testConfig(b.TempDir(), 1)
			d, c, err := openDisk(&cfg)
			if err != nil {
				b.Fatal(err)
			}
			defer d.close()
			c.snapshot.Data = make([]byte, 250*nodes)
			for i := range uint64(200) {
				c.entries = append(c.entries, &raftpb.Entry{Index: proto.Uint64(2 + i), Term: proto.Uint64(1), Data: make([]byte, 250)})
			}
			for b.Loop() {
				if err := d.save(c); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
