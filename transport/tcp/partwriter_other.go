//go:build !linux

package tcp

import "github.com/nexar-go/nexar/transport"

// addPartCapabilities adds nothing: writes that do not block are only implemented on Linux.
func (s *sender) addPartCapabilities(*transport.Capabilities) {}

// A partWriter is only used on Linux.
type partWriter struct{}

func (*partWriter) init() {}
