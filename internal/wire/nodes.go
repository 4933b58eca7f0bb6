package wire

import (
	"bytes"

	"github.com/nexar-go/nexar/internal/membership"
)

// nodeBytesMin is the length of a node with empty fields.
const nodeBytesMin = 16 + 1 + 2 + 2 + 1

// nodes encodes or decodes a list of nodes.
func (c *codec) nodes(v *[]membership.Node) {
	shared := sharedFields{names: make(map[string]string)}
	host := func(v *string) {
		c.name(v, nameBytesMax)
		shared.name(c, v)
	}
	endpoints := func(v *[]membership.Endpoint) {
		c.endpoints(v)
		for i := range *v {
			shared.name(c, &(*v)[i].Transport)
		}
	}
	longList(c, v, nodeBytesMin, func(node *membership.Node) {
		c.id((*[16]byte)(&node.ID))
		c.addrs(&node.Addrs)
		repeated(c, &shared.host, &node.Host, host)
		c.name(&node.Name, nameBytesMax)
		repeated(c, &shared.endpoints, &node.Endpoints, endpoints)
	})
}

// sharedFields lets the decoded nodes of a message share equal names of hosts and transports, and equal lists of endpoints. A node of a
// large world keeps all others in memory.
type sharedFields struct {
	names     map[string]string
	host      recent[string]
	endpoints recent[[]membership.Endpoint]
}

// name replaces a decoded name by an equal one of an earlier node.
func (s *sharedFields) name(c *codec, name *string) {
	if c.encoding {
		return
	}
	known, ok := s.names[*name]
	if !ok {
		known = *name
		s.names[known] = known
	}
	*name = known
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
