package wire

import "testing"

var remoteCancelKind = remoteKind{
	typ:   TypeRemoteCancel,
	size:  remoteCancelSize,
	zero:  func() any { return new(RemoteCancel) },
	write: func(m any, tail []byte) []byte { return append(m.(*RemoteCancel).Append(nil), tail...) },
	parse: func(b []byte) (any, []byte, error) { c, err := ParseRemoteCancel(b); return &c, nil, err },
}

func TestRemoteCancel(t *testing.T) {
	checkRemote(t, remoteCancelKind, &RemoteCancel{ID: 0x0102030405060708}, "", "03 0102030405060708 00", remoteCancelSize)
	checkRemote(t, remoteCancelKind, &RemoteCancel{ID: 0x0102030405060708, Expired: true}, "", "03 0102030405060708 01", remoteCancelSize)
	checkRemoteRefused(t, remoteCancelKind, errValue, "03 0102030405060708 02", "03 0102030405060708 ff")
	checkRemoteRefused(t, remoteCancelKind, errTrailing, "03 0102030405060708 01 00")
}
