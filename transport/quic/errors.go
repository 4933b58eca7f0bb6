package quic

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"

	quicgo "github.com/quic-go/quic-go"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// Codes of CONNECTION_CLOSE tell the peer, and the pipes of this side, why a connection
// was ended.
const (
	codeClosed  quicgo.ApplicationErrorCode = 0 // closed by the application
	codeGone    quicgo.ApplicationErrorCode = 1 // the peer counts as gone
	codeRefused quicgo.ApplicationErrorCode = 2 // the identity was refused
	codeBusy    quicgo.ApplicationErrorCode = 3 // too many connections are not accepted or not authenticated
	codeLeft    quicgo.ApplicationErrorCode = 4 // the peer has closed, as its watch reports
	codeStalled quicgo.ApplicationErrorCode = 5 // packets do not arrive, and the process of the peer lives
)

// endError returns the error of package transport for the end of a connection.
func endError(err error) error { return fmt.Errorf("quic: %w", endReason(err)) }

func endReason(err error) error {
	if app, ok := errors.AsType[*quicgo.ApplicationError](err); ok {
		return closeReason(app)
	}
	if _, ok := errors.AsType[*quicgo.StatelessResetError](err); ok {
		// Only the process that has had the connection has the key for the reset: it lives, and its CONNECTION_CLOSE was lost.
		return fmt.Errorf("%w: its process no longer knows the connection", transport.ErrPeerClosed)
	}
	if errors.Is(err, quicgo.ErrTransportClosed) || errors.Is(err, context.Canceled) {
		return transport.ErrClosed
	}
	// err is not wrapped: it always wraps net.ErrClosed.
	return fmt.Errorf("%w: %s", transport.ErrPeerGone, wire.Escape(err.Error()))
}

// closeReason returns the error for a connection that one of the sides has closed.
func closeReason(err *quicgo.ApplicationError) error {
	var kind error
	switch code := err.ErrorCode; {
	case code == codeGone && err.Remote:
		return fmt.Errorf("%w: it counts this side as gone: %s", transport.ErrPeerGone, wire.Escape(err.ErrorMessage))
	case code == codeGone:
		kind = transport.ErrPeerGone
	case code == codeStalled && !err.Remote:
		kind = transport.ErrStalled
	case code == codeLeft, err.Remote:
		kind = transport.ErrPeerClosed
	default:
		kind = transport.ErrClosed
	}
	switch {
	case err.ErrorCode == codeClosed:
		return kind
	case err.ErrorCode == codeBusy && err.Remote:
		return fmt.Errorf("%w: %w: %s", kind, transport.ErrBusy, wire.Escape(err.ErrorMessage))
	}
	return fmt.Errorf("%w: %s", kind, wire.Escape(err.ErrorMessage))
}

// closedHere reports whether this side has closed the connection: its process lives.
func closedHere(err error) bool {
	app, ok := errors.AsType[*quicgo.ApplicationError](err)
	return ok && !app.Remote && (app.ErrorCode == codeClosed || app.ErrorCode == codeStalled)
}

// pipeError returns the error of package transport for a failed call of a pipe.
func pipeError(err error) error {
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	if st, ok := errors.AsType[*quicgo.StreamError](err); ok {
		if st.Remote {
			return fmt.Errorf("quic: pipe %w", errPipeAbandoned)
		}
		return fmt.Errorf("quic: pipe: %w", transport.ErrClosed)
	}
	if errors.Is(err, quicgo.ErrStreamClosed) {
		return fmt.Errorf("quic: pipe: %w", transport.ErrClosed)
	}
	return endError(err)
}

// errPipeAbandoned is returned to the writer of a pipe after its reader has closed it.
var errPipeAbandoned = fmt.Errorf("is no longer read: %w", transport.ErrPeerClosed)

// dialError adds the address, and the error of package transport for the failure.
func dialError(addr string, err error) error {
	return fmt.Errorf("quic: dial %s: %w", addr, handshakeError(err))
}

func handshakeError(err error) error {
	var (
		te      *quicgo.TransportError
		ae      *quicgo.ApplicationError
		idle    *quicgo.IdleTimeoutError
		timeout *quicgo.HandshakeTimeoutError
		version *quicgo.VersionNegotiationError
	)
	switch {
	case errors.As(err, &te) && certificateAlert(te.ErrorCode):
		if te.Remote {
			return fmt.Errorf("%w: the peer rejected the certificate of this node: %s", transport.ErrIdentity, wire.Escape(te.Error()))
		}
		return fmt.Errorf("%w: %s", transport.ErrIdentity, wire.Escape(te.Error()))
	case errors.As(err, &te) && te.Remote && (te.ErrorCode == quicgo.ConnectionRefused || te.ErrorCode == quicgo.ApplicationErrorErrorCode):
		// The close of a connection that is evicted during its handshake can only say that the
		// application has ended it (RFC 9000, section 10.2.3).
		return fmt.Errorf("%w: it refused the connection: %s", transport.ErrBusy, wire.Escape(te.Error()))
	case errors.As(err, &ae) && ae.Remote && ae.ErrorCode == codeBusy:
		return fmt.Errorf("%w: %s", transport.ErrBusy, wire.Escape(ae.ErrorMessage))
	case errors.As(err, &te):
		return errors.New(wire.Escape(te.Error()))
	case errors.As(err, &ae):
		return closeReason(ae)
	case errors.As(err, &idle), errors.As(err, &timeout):
		return fmt.Errorf("%w: no answer", transport.ErrPeerGone)
	case errors.As(err, &version): // It is net.ErrClosed, too, and whoever sees the packets of this side can forge the answer.
		return errors.New(wire.Escape(version.Error()))
	case errors.Is(err, quicgo.ErrTransportClosed), errors.Is(err, net.ErrClosed):
		return transport.ErrClosed
	}
	return err
}

// certificateAlert reports whether a TLS alert (RFC 8446, section 6.2) is about
// a certificate: bad_certificate to unknown_ca, access_denied and decrypt_error
// for a wrong signature, certificate_required.
func certificateAlert(code quicgo.TransportErrorCode) bool {
	const crypto = 0x100 // RFC 9001, section 4.8
	if code < crypto || code > crypto+0xff {
		return false
	}
	switch alert := code - crypto; alert {
	case 48, 49, 51, 116:
		return true
	default:
		return 42 <= alert && alert <= 46
	}
}
