//go:build !linux

package tcp

import "github.com/nexar-go/nexar/transport"

// addPartCapabilities adds nothing: partial writes are only implemented on Linux.
func (s *sender) addPartCapabilities(*transport.Capabilities) {}

// A partWriter is only used on Linux.
type partWriter struct{}

func (*partWriter) init() {}

// tryWritev writes as much of the pieces as the socket accepts.
func (s *sender) tryWritev(pieces [][]byte) (n int) {
	for _, p := range pieces {
		k, _ := s.tryWrite(p)
		if n += k; k < len(p) {
			break
		}
	}
	return n
}
