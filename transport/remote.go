package transport

import (
	"context"
	"errors"
)

// ErrRemoteAccess reports that a remote write was refused: its key is revoked, is of
// another Conn or was never granted, or the write exceeds the grant.
var ErrRemoteAccess = errors.New("transport: remote access refused")

// A RemoteKey permits the peer of a Conn to write to a [Grant]. It is plain data, which the
// owner of the memory sends to the peer in a frame.
type RemoteKey struct {
	Addr uint64 // address of the first byte, in the address space of the transport
	Key  uint64 // identifies the grant; unique among all grants of the Conn that stand
	Len  uint64 // length of the grant in bytes
}

// A RemoteMemory is a Conn over which each side can write directly into registered memory of
// the other, like RDMA hardware. The process that owns the memory takes no part in the writes.
type RemoteMemory interface {
	// Suits reports whether a payload for memory should be written remotely: whether Register,
	// a grant and WriteRemote are faster than a pipe. It is false for memory that cannot be registered.
	Suits(memory []byte) bool

	// Register makes memory accessible to the transport, which may lock it in physical memory. It is
	// slow, and meant for memory that is used repeatedly. The memory must stay
	// reachable until Deregister.
	Register(memory []byte) (Registration, error)

	// WriteRemote writes p to the memory of a grant of the peer, starting at
	// offset, and blocks until p may be used again. When it returns nil, all of p
	// is in place, and visible to the peer before anything that this side
	// writes to a pipe of the Conn afterwards.
	//
	// It fails with ErrRemoteAccess and writes nothing if the key is not valid or
	// if offset+len(p) exceeds the grant. If the grant is revoked, the Conn ends or
	// ctx is done during the write, it fails, and a part of p may have been
	// written. No byte is written after Revoke has returned at the peer. A write that is
	// refused may also end the Conn, as hardware does, but not if the key is of another Conn.
	WriteRemote(ctx context.Context, key RemoteKey, offset int, p []byte) error
}

// A Registration is memory that a RemoteMemory can access.
type Registration interface {
	// Grant permits the peer to write to memory[offset:offset+n] until Revoke,
	// Deregister or the end of the Conn: no byte is written after Done is closed.
	// Grants may overlap. Grant fails after Deregister. It does not block. The key is valid
	// when the peer has read it from a pipe of the Conn, which may be later than the return of Grant.
	Grant(offset, n int) (Grant, error)

	// Deregister revokes all grants and releases the memory. It may be called more
	// than once.
	Deregister()
}

// A Grant is the permission for the peer to write to a part of a [Registration].
type Grant interface {
	// Key returns the key that the peer passes to WriteRemote.
	Key() RemoteKey

	// Recall asks the peer to stop. When it returns nil, WriteRemote of the peer fails with
	// ErrRemoteAccess for this key and does not end the Conn, and no such call is in progress. It fails
	// when ctx is done, or if the Conn ends. The peer answers without its application.
	Recall(ctx context.Context) error

	// Revoke invalidates the key. After it has returned no byte of the memory is written under
	// this grant, regardless of the peer. It does not wait for messages of the peer, and may be
	// called more than once.
	Revoke()
}
