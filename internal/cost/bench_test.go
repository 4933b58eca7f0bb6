//race:none it starts no goroutine

package cost

import (
	"fmt"
	"testing"

	"github.com/nexar-go/nexar/internal/plan"
)

// BenchmarkManyRanksOverLinks: the first calls of two collectives of ranks that share two processors and no memory. "linked" counts
// the links that plans need.
func BenchmarkManyRanksOverLinks(b *testing.B) {
	for _, size := range []int{64, 128, 1024} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				chooseTwo(New(TCP(true)).Crowded(Crowd(size, 2)), size)
			}
		})
		b.Run(fmt.Sprint(size, "/linked"), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				chooseTwo(New(TCP(true)).Crowded(Crowd(size, 2)).Linked(watchLinks(size)), size)
			}
		})
	}
}

func chooseTwo(t lister, size int) {
	t.Choose(Need{Collective: plan.AllReduce, Size: size, Bytes: 4})
	t.Choose(Need{Collective: plan.Barrier, Size: size})
}

// BenchmarkManyRanksChoose: the first calls of two collectives, as every rank of a host makes them after it has joined.
func BenchmarkManyRanksChoose(b *testing.B) {
	for _, size := range []int{32, 64, 128, SharedRanksMax} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				chooseTwo(NewShared(Host(256<<10, 2), plan.Groups(size)), size)
			}
		})
	}
}
