package wire

import (
	"strings"
	"testing"
)

// remoteCallKind takes the name for the first part of the tail, the arguments
// for the rest of it.
var remoteCallKind = remoteKind{
	typ:  TypeRemoteCall,
	size: remoteCallSize,
	zero: func() any { return new(RemoteCall) },
	write: func(m any, tail []byte) []byte {
		c := m.(*RemoteCall)
		n := min(c.Length, len(tail), RemoteNameMax)
		return append(c.Append(nil, string(tail[:n])), tail[n:]...)
	},
	parse: func(b []byte) (any, []byte, error) {
		c, name, args, err := ParseRemoteCall(b)
		return &c, append(append([]byte{}, name...), args...), err
	},
}

func TestRemoteCall(t *testing.T) {
	checkRemote(t, remoteCallKind, &RemoteCall{ID: 0x0102030405060708, Remaining: 0x1112131415161718, Length: 3},
		"73756d a1a2", "01 0102030405060708 1112131415161718 03 73756d a1a2", remoteCallSize+3)
	checkRemote(t, remoteCallKind, &RemoteCall{ID: 1, Length: 1}, "66", "01 0000000000000001 0000000000000000 01 66", remoteCallSize+1)
	longest := strings.Repeat("6e", RemoteNameMax)
	checkRemote(t, remoteCallKind, &RemoteCall{Length: RemoteNameMax}, longest+"00",
		"01 0000000000000000 0000000000000000 ff"+longest+"00", RemoteHeadMax)
	checkRemoteRefused(t, remoteCallKind, errValue,
		"01 0000000000000001 0000000000000000 00",
		"01 0000000000000001 0000000000000000 00 66")
}
