package cost

import "github.com/nexar-go/nexar/internal/plan"

// firstCalls is a number of calls. The model spreads the first use of links over them. A program with fewer calls on a communicator
// spends little time in them, and one with many more gains nothing from fewer links.
const firstCalls = 4000

const (
	// firstLeast is the least share of a call in the first use of links that counts in the model. A smaller one must not decide
	// between plans with equal predictions, since the model is less exact than that.
	firstLeast = 0.03
	// firstPart is the part of the time of a call that the first use adds if it counts. So no call is predicted to take longer
	// than that for the sake of links that are made once.
	firstPart = 0.01
)

// Linked returns the ranks that a rank is linked to before the first call of a communicator. Duplicates do not matter. All
// ranks must get the same result for a rank. So it depends on the communicator alone: the links that exist at the time of a call
// depend on earlier calls and on failures, and a rank does not know those of others.
type Linked func(rank int) []int

// Linked makes the Tuner count the links that a plan needs beyond those of l, and returns it. It must be called before
// the first choice. By default, all ranks are linked. It has no effect with [Tuner.Over]: on a sparse topology no rank makes links
// but those to its neighbors.
func (t *Tuner) Linked(l Linked) *Tuner {
	t.linked = l
	return t
}

// firstUse returns the part of a call that the first use of links adds. seconds is the time of the call over existing links. A
// handshake is work of processors, so those of the busiest rank follow each other.
func (t *Tuner) firstUse(i int, a plan.Algorithm, n Need, seconds float64) float64 {
	if t.linked == nil || t.hops != nil || t.handshake == 0 {
		return 0
	}
	links := t.newLinks.of(n, i, func() int { return t.countNewLinks(a, n.Size) })
	if float64(links)*t.handshake < float64(seconds*firstLeast)*firstCalls {
		return 0
	}
	return float64(seconds * firstPart)
}

// countNewLinks returns the number of links that a plan needs beyond those of t.linked, of the busiest of a few ranks. Ranks on
// one of t.hosts share memory, and need none.
func (t *Tuner) countNewLinks(a plan.Algorithm, size int) (most int) {
	linkedTo := make([]int, size) // the last of the ranks below that has or needs a link to each rank, plus 1
	for _, rank := range few(size) {
		for _, peer := range t.linked(rank) {
			linkedTo[peer] = rank + 1
		}
		links := 0
		for peer := range a.Plan(rank, size, 0).Peers {
			if linkedTo[peer] == rank+1 {
				continue
			}
			linkedTo[peer] = rank + 1
			if t.hosts.Size() == 0 || !t.hosts.Same(rank, peer) {
				links++
			}
		}
		most = max(most, links)
	}
	return most
}
