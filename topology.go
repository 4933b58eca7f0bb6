package nexar

import "github.com/nexar-go/nexar/internal/topology"

// CheckTopology returns an error if a topology is not a value of [Config].Topology, or if size is positive and a world of so
// many ranks has no graph with its number of neighbors at each rank, or has ranks that are more than 64 links apart, which
// relays do not cross. Nodes complete the first kind of graph, since worlds change their sizes, and the seed refuses nodes that would make
// the distances too long. Programs that start the ranks of a world can refuse both before, as nexar run does.
func CheckTopology(name string, size int) error {
	t, err := topology.Parse(name)
	if err == nil && size > 0 {
		err = t.CheckSize(size)
	}
	return err
}
