package mesh

import "testing"

// In these worlds each node has two neighbors, and reaches the others over relays. When two nodes change places in the view, up to six get
// other neighbors.
const randomTopology = "k-regular:2"

// TestRandomSparseReleases is TestRandomReleases in a sparse topology. Only connections to former neighbors are released.
func TestRandomSparseReleases(t *testing.T) {
	inRandomWorlds(t, randomTopology, sparseSeeds, testing.Short(), (*randomWorld).releases)
}

// TestRandomSparseBreaks is TestRandomBreaks in a sparse topology.
func TestRandomSparseBreaks(t *testing.T) {
	inRandomWorlds(t, randomTopology, sparseSeeds, testing.Short(), (*randomWorld).breaks)
}

// TestRandomSparseKills is TestRandomKills in a sparse topology.
func TestRandomSparseKills(t *testing.T) {
	inRandomWorlds(t, randomTopology, sparseSeeds, testing.Short(), (*randomWorld).kills)
}
