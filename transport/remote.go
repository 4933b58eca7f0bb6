package transport

import (
	"context"
	"errors"
)

// ErrRevoked says that a remote write used a key that is not valid: its grant was
// revoked, belongs to another Conn or was never made, or the write exceeds it.
var ErrRevoked = errors.New("transport: the remote grant is not valid")

// A RemoteKey lets the peer of a Conn write to memory that this node has granted.
// It is plain data: the grantor sends it to the peer in a frame of its own.
type RemoteKey struct {
	Addr uint64 // of the first byte, as the transport counts them
	Key  uint64 // names the grant; never used again on the same Conn
	Len  uint64 // of the granted memory, in bytes
}

// A RemoteMemory is a Conn over which one side writes straight into registered
// memory of the other, as RDMA hardware does. The owner of the memory takes part
// in granting and revoking, and not in the writes.
type RemoteMemory interface {
	// Register makes memory known to the transport, which may pin it. Registering
	// is slow and is done once for memory that is used again and again. The
	// memory must stay reachable until Deregister.
	Register(memory []byte) (Registration, error)

	// WriteRemote writes p into the memory that key grants, from offset on. When
	// it returns nil, p is in the peer's memory, the peer reads it in place after
	// anything that this side writes to a pipe of the same Conn from then on, and p
	// may be used again.
	//
	// It fails with ErrRevoked, and writes nothing, if the key is not valid or
	// offset+len(p) exceeds the grant. It fails with the error of the Conn or the
	// cause of ctx if either ends first; then part of p may be in the peer's
	// memory, but nothing is written to it after Revoke has returned.
	WriteRemote(ctx context.Context, key RemoteKey, offset int, p []byte) error
}

// A Registration is memory that a transport knows.
type Registration interface {
	// Grant lets the peer of the Conn write to memory[offset:offset+n] until
	// Revoke, Deregister or the end of the Conn.
	Grant(offset, n int) (Grant, error)

	// Deregister revokes all grants and lets the memory go.
	Deregister()
}

// A Grant is the permission for a peer to write to part of a registration.
type Grant interface {
	// Key is what the peer needs for WriteRemote.
	Key() RemoteKey

	// Revoke ends the grant, and its key with it. When Revoke returns no write
	// touches the memory any more, whatever the peer does. It does not wait for
	// the peer, and may be called more than once.
	Revoke()
}
