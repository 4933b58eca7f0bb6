package sim_test

import (
	"testing"

	"github.com/nexar-go/nexar/transport/sim"
	"github.com/nexar-go/nexar/transport/transporttest"
)

func BenchmarkSim(b *testing.B) { transporttest.Bench(b, cluster(sim.Config{})) }
