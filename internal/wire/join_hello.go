package wire

import "fmt"

// A JoinHello is the first message of a node to a seed. The version comes
// first and is read even if the rest means nothing to the reader.
type JoinHello struct {
	Version uint16
	Proof   []byte // 32 bytes, or none: the node has no token
}

// A VersionError says that the peer speaks another version of the protocol.
type VersionError struct{ Theirs, Ours uint16 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("peer speaks version %d of the nexar protocol, this side version %d", e.Theirs, e.Ours)
}

func (JoinHello) joinType() joinType { return typeJoinHello }

func (m JoinHello) encode(e *joinEncoder) {
	e.u16(m.Version)
	e.proof(m.Proof)
}

func decodeJoinHello(d *decoder) (JoinMessage, error) {
	m := JoinHello{Version: d.u16()}
	if d.err == nil && m.Version != Version {
		return nil, &VersionError{Theirs: m.Version, Ours: Version}
	}
	m.Proof = decodeProof(d)
	return m, nil
}
