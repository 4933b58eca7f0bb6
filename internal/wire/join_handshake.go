package wire

import "fmt"

// AnyRank as the rank of a JoinRequest lets the seed choose the rank. As the
// rank of a JoinReport it says that the node has none.
const AnyRank = -1

// A JoinHello is the first message of a node to a seed. The version comes
// first, so that it is read even if the rest has another form.
type JoinHello struct {
	Version uint16
	Proof   []byte // 32 bytes; empty if the node has no token
}

// A VersionError reports that the peer speaks another version of the protocol.
type VersionError struct{ Theirs, Ours uint16 }

func (e *VersionError) Error() string {
	return fmt.Sprintf("peer speaks version %d of the nexar protocol, this side version %d", e.Theirs, e.Ours)
}

func (m JoinHello) code(c *joinCodec) JoinMessage {
	if c.u16(&m.Version); !c.encoding && m.Version != Version {
		c.fail(&VersionError{Theirs: m.Version, Ours: Version})
	}
	c.proof(&m.Proof)
	return m
}

// A JoinAnswer is the seed's answer to the JoinHello of a node that holds the
// cluster token.
type JoinAnswer struct {
	Proof   []byte // 32 bytes; empty if the cluster has no token
	Cluster string
}

func (m JoinAnswer) code(c *joinCodec) JoinMessage {
	c.proof(&m.Proof)
	c.name(&m.Cluster, nameBytesMax)
	return m
}

// A JoinRefusal is the seed's last message to a node that it does not admit.
// Its form is the same in every version of the protocol.
type JoinRefusal struct {
	Code RefusalCode
	Text string // for people; cut off after 2 KiB
}

// A RefusalCode is the reason of a refusal. Codes that a reader does not know
// are legal.
type RefusalCode uint16

const (
	RefusedMalformed RefusalCode = iota + 1 // a malformed or unexpected message
	RefusedVersion                          // another version of the protocol
	RefusedToken                            // no cluster token, or the wrong one
	RefusedRank                             // the requested rank is taken or too large
	RefusedAddress                          // no address at which others could reach the node
	RefusedFull                             // the world is full
	RefusedOver                             // the world has formed already, or has failed to
	RefusedBusy                             // the seed serves as many requests as it can
)

func (m JoinRefusal) code(c *joinCodec) JoinMessage {
	c.u16((*uint16)(&m.Code))
	c.text(&m.Text)
	return m
}

// A JoinElsewhere is the last message of a seed that does not lead. It names
// the seed that does.
type JoinElsewhere struct {
	Leader string // its address; empty if the seeds have not elected one
}

func (m JoinElsewhere) code(c *joinCodec) JoinMessage {
	c.name(&m.Leader, addrBytesMax)
	return m
}

// A JoinRequest asks the seed to admit the node to the world.
type JoinRequest struct {
	CSR        []byte   // PKCS #10, DER
	Advertised []string // configured addresses of the node; if empty, the seed uses the observed one
	Extra      []string // further addresses at which the node may be reached
	Port       uint16   // where the node listens; 0: the source port of this conn
	Host       string   // identifies the host, equal for all nodes on it
	Name       string   // for people: hostname:pid
	Rank       int32    // the only rank that the node accepts, or AnyRank
	Spare      bool     // the node replaces one that has failed
	Again      bool     // a seed has admitted the node before, and the conn to it has ended
	Epoch      uint64   // newest view that the node has; 0: none
	Endpoints  []JoinEndpoint
}

func (m JoinRequest) code(c *joinCodec) JoinMessage {
	c.bytes(&m.CSR, certificateBytesMax)
	c.addrs(&m.Advertised)
	c.addrs(&m.Extra)
	c.u16(&m.Port)
	c.name(&m.Host, nameBytesMax)
	c.name(&m.Name, nameBytesMax)
	c.rank(&m.Rank)
	c.flag(&m.Spare)
	c.flag(&m.Again)
	c.u64(&m.Epoch)
	c.endpoints(&m.Endpoints)
	return m
}

// A JoinAdmitted gives a node its identity and certificate.
type JoinAdmitted struct {
	Certificate []byte // DER
	CA          []byte // DER
	ID          [16]byte
	Observed    string // source address of the node's packets
	World       uint32 // initial size of the world
	// Lasting says that membership outlives a seed: after the end of its conn a node
	// joins again, at the same seed or at one of Seeds.
	Lasting bool
	Seeds   []string
}

func (m JoinAdmitted) code(c *joinCodec) JoinMessage {
	c.bytes(&m.Certificate, certificateBytesMax)
	c.bytes(&m.CA, certificateBytesMax)
	c.id(&m.ID)
	c.name(&m.Observed, addrBytesMax)
	c.u32(&m.World)
	c.flag(&m.Lasting)
	c.addrs(&m.Seeds)
	return m
}

// A JoinRenew requests the node's next certificate. Its signing request is
// made with the same key as the first.
type JoinRenew struct {
	CSR []byte // PKCS #10, DER
}

func (m JoinRenew) code(c *joinCodec) JoinMessage {
	c.bytes(&m.CSR, certificateBytesMax)
	return m
}

// A JoinRenewed carries a node's next certificate.
type JoinRenewed struct {
	Certificate []byte // DER
}

func (m JoinRenewed) code(c *joinCodec) JoinMessage {
	c.bytes(&m.Certificate, certificateBytesMax)
	return m
}
