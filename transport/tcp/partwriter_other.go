//go:build !linux

package tcp

import "github.com/nexar-go/nexar/transport"

// addParts adds nothing: the room in a socket is not known here.
func (s *sender) addPartCapabilities(*transport.Capabilities) {}

// A parting would let a sender write as much as there is room for.
type partWriter struct{}

func (*partWriter) init() {}
