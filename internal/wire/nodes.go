package wire

import (
	"bytes"
	"slices"

	"github.com/nexar-go/nexar/internal/membership"
)

// nodeBytesMin is the length of a node with empty fields.
const nodeBytesMin = 16 + 1 + 2 + 2 + 1

// nodes encodes or decodes a list of nodes after its length (32 bits). The length is checked
// against the remaining bytes before the list is allocated.
func (c *codec) nodes(v *[]membership.Node) {
	n := uint32(len(*v))
	c.u32(&n)
	if !c.encoding {
		if uint64(n)*nodeBytesMin > uint64(len(c.b)) {
			c.fail(errShort)
		}
		if c.err != nil || n == 0 {
			return
		}
		*v = make([]membership.Node, n)
	}
	shared := sharedTexts{names: make(map[string]string)}
	for i := range *v {
		node := &(*v)[i]
		c.id((*[16]byte)(&node.ID))
		c.addrs(&node.Addrs)
		repeated(c, &shared.host, &node.Host, func(v *string) { c.name(v, nameBytesMax) })
		c.name(&node.Name, nameBytesMax)
		if repeated(c, &shared.endpoints, &node.Endpoints, c.endpoints); !c.encoding {
			shared.in(node)
		}
	}
}

// recent is the last decoded value of a field, with its encoding.
type recent[V any] struct {
	value   V
	encoded []byte
}

// repeated encodes or decodes a field of a node. If its encoding is that of the last node, it shares the value: most nodes of a
// host have equal names of the host and equal endpoints.
func repeated[V any](c *codec, last *recent[V], v *V, field func(*V)) {
	if c.encoding {
		field(v)
		return
	}
	if n := len(last.encoded); n > 0 && bytes.HasPrefix(c.b, last.encoded) {
		*v, c.b = last.value, c.b[n:]
		return
	}
	before := c.b
	if field(v); c.err == nil {
		last.value, last.encoded = *v, before[:len(before)-len(c.b)]
	}
}

// sharedTexts lets the decoded nodes of a message share equal names of hosts and transports, and equal lists of endpoints. A node of a
// large world keeps all others in memory.
type sharedTexts struct {
	names     map[string]string
	last      []membership.Endpoint // of a node
	host      recent[string]
	endpoints recent[[]membership.Endpoint]
}

// in replaces texts of a node by equal ones of earlier nodes. No other goroutine knows the node.
func (s *sharedTexts) in(n *membership.Node) {
	n.Host = s.name(n.Host)
	if slices.Equal(n.Endpoints, s.last) {
		n.Endpoints = s.last
		return
	}
	for i := range n.Endpoints {
		n.Endpoints[i].Transport = s.name(n.Endpoints[i].Transport)
	}
	s.last = n.Endpoints
}

func (s *sharedTexts) name(text string) string {
	if known, ok := s.names[text]; ok {
		return known
	}
	s.names[text] = text
	return text
}
