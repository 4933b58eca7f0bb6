package simulate

// A network is the state of all links.
type network struct {
	topology topology
	hosts    int
	perHost  int
	links    []link
	memories []picos // of each host: until when it is busy; nil if it never is
	hop      picos
	wire     float64 // picoseconds per byte
	memory   float64
	path     []int32 // reused
}

// A link carries one message after the other.
type link struct {
	free  picos // when the last message has passed
	bytes int64
}

func newNetwork(m *machine, hosts int) network {
	n := network{
		topology: m.topology, hosts: hosts, perHost: m.RanksPerHost, links: make([]link, m.topology.links(hosts)),
		hop: pico(m.Hop), wire: perByte(m.Network.Rate), memory: perByte(m.Memory.Rate),
	}
	if n.memory > 0 && m.RanksPerHost > 1 {
		n.memories = make([]picos, hosts)
	}
	return n
}

// carry sends a message over its path at a time. It returns when its first and its last bytes
// arrive, without the latency of the path. Each link waits for earlier messages, and passes bytes
// on while others arrive.
func (n *network) carry(msg *message, now picos) (head, tail picos) {
	from, to := int(msg.from)/n.perHost, int(msg.to)/n.perHost
	if from == to {
		if n.memories == nil {
			return now, now
		}
		busy := &n.memories[from]
		head = max(now, *busy)
		*busy = head + picos(n.memory*float64(msg.bytes))
		return head + firstPart(*busy-head, msg.bytes), *busy
	}
	passes := picos(n.wire * float64(msg.bytes))
	n.path = n.topology.path(n.path[:0], n.hosts, from, to)
	head = now
	for i, l := range n.path {
		link := &n.links[l]
		head = max(head, link.free)
		link.free = head + passes
		link.bytes += msg.bytes
		if i > 1 || i > 0 && n.topology.shape == torus {
			head += n.hop
		}
	}
	return head + firstPart(passes, msg.bytes), head + passes
}

// busiest returns the name and the bytes of the link that has carried most.
func (n *network) busiest() (name string, bytes int64) {
	most := -1
	for i := range n.links {
		if n.links[i].bytes > bytes {
			most, bytes = i, n.links[i].bytes
		}
	}
	if most >= 0 {
		name = n.topology.link(most, n.hosts)
	}
	return name, bytes
}
