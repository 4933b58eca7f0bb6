package mesh

import (
	"context"
	"errors"
	"io"
	"net"
	"syscall"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
)

// handshakes is the number of broken handshakes with an address that count as a refusal.
const handshakes = 3

// refusal returns an error if no process of a node listens any more, or the process refuses this node: all its addresses on all
// refusing paths refuse a connection. A handshake that breaks, like the connection before it, is no refusal, and neither is an error
// of this host or of the network.
func (d *dialer) refusal(ctx context.Context, n *membership.Node) (reason error) {
	for i := range d.reach.paths {
		p := &d.reach.paths[i]
		if !p.refuses(n) {
			continue
		}
		for _, addr := range d.reach.addrs(p, n) {
			for range handshakes {
				c, err := p.Transport.Dial(ctx, addr, n.ID.String())
				if err == nil {
					c.Close()
					return nil
				}
				// The dial may notice the deadline before ctx does.
				if end, ok := ctx.Deadline(); ctx.Err() != nil || ok && !time.Now().Before(end) || isUnanswered(err) {
					return nil //nolint:nilerr // It does not answer, which is no refusal.
				}
				if reason = err; !isBrokenHandshake(err) {
					break
				}
			}
		}
	}
	return reason
}

// isUnanswered reports whether a dial has failed without an answer from the address: it cannot be reached, or this host has no files or
// ports left.
func isUnanswered(err error) bool {
	const windowsRefused = syscall.Errno(10061) // of Winsock
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		return true
	}
	number, ok := errors.AsType[syscall.Errno](err)
	return ok && number != syscall.ECONNREFUSED && number != windowsRefused && !isReset(err)
}

// isReset reports whether the other side has ended a connection after its beginning.
func isReset(err error) bool {
	const windowsReset = syscall.Errno(10054) // of Winsock
	number, _ := errors.AsType[syscall.Errno](err)
	return number == syscall.ECONNRESET || number == syscall.EPIPE || number == windowsReset
}

// isBrokenHandshake reports whether a dial has failed after the address has answered: the process may end, or the network
// breaks connections.
func isBrokenHandshake(err error) bool {
	op, _ := errors.AsType[*net.OpError](err)
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || op != nil && (op.Op == "read" || op.Op == "write") || isReset(err)
}
