//go:build linux

package rdma

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"

	"github.com/nexar-go/nexar/hw/internal/verbs"
)

// params describe a QP for the peer. They are sent over the control connection.
type params struct {
	Version int
	QP, PSN uint32
	LID     uint16
	GID     [16]byte
	MTU     int
	Slot    int
}

const (
	paramsVersion = 4
	paramsMax     = 1 << 10
)

// Bytes on the control connection.
const (
	ctlReady  = 'r'
	ctlBye    = 'b' // the conn is closed
	ctlFailed = 'x' // the conn has ended, or is not made; the reason follows. It may also come in place of the parameters.
)

// exchange exchanges the parameters and connects the QP.
func (c *conn) exchange() error {
	dev := c.t.dev
	var psn [4]byte
	rand.Read(psn[:])
	mine := params{
		Version: paramsVersion, QP: c.qp.Number, PSN: binary.BigEndian.Uint32(psn[:]) & 0xffffff,
		LID: dev.port.LID, GID: dev.gid.GID, MTU: dev.mtu, Slot: slotBytes,
	}
	b, err := json.Marshal(mine)
	if err != nil {
		return err
	}
	if _, err := c.control.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...)); err != nil {
		return err
	}
	var head [2]byte
	if _, err := io.ReadFull(c.control, head[:]); err != nil {
		return err
	}
	if head[0] == ctlFailed {
		return readFailure(io.MultiReader(bytes.NewReader(head[1:]), c.control))
	}
	n := int(binary.BigEndian.Uint16(head[:]))
	if n > paramsMax {
		return fmt.Errorf("the parameters of the peer have %d bytes, want at most %d", n, paramsMax)
	}
	b = make([]byte, n)
	if _, err := io.ReadFull(c.control, b); err != nil {
		return err
	}
	var theirs params
	if err := json.Unmarshal(b, &theirs); err != nil {
		return fmt.Errorf("parameters of the peer: %w", err)
	}
	if theirs.Version != paramsVersion || theirs.Slot != slotBytes || theirs.MTU < 256 || theirs.MTU > 4096 {
		return fmt.Errorf("the peer has version %d, buffers of %d bytes and MTU %d; want %d, %d and 256 to 4096",
			theirs.Version, theirs.Slot, theirs.MTU, paramsVersion, slotBytes)
	}
	cfg := c.t.cfg
	c.route = verbs.Route{
		Port: dev.port.Number, GIDIndex: dev.gid.Index, GID: theirs.GID, LID: theirs.LID,
		Global: dev.port.LinkLayer == verbs.LinkEthernet || theirs.LID == 0, HopLimit: 64,
		ServiceLevel: cfg.ServiceLevel, TrafficClass: cfg.TrafficClass, MTU: min(dev.mtu, theirs.MTU),
		QP: theirs.QP, PSN: theirs.PSN, OwnPSN: mine.PSN,
		AckTimeout: 17, Retries: 6, RNRs: 6, // 0.5 s, doubled by many devices; soft RoCE takes 7 as for ever
	}
	if err := c.qp.Connect(c.route); err != nil {
		return fmt.Errorf("connect the queue pair of GID %v to that of the peer, GID %v, which needs a route there: %w",
			netip.AddrFrom16(mine.GID).Unmap(), netip.AddrFrom16(theirs.GID).Unmap(), err)
	}
	return nil
}
