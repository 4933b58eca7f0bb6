package tcp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"github.com/nexar-go/nexar/transport"
)

var (
	errTransportClosed = fmt.Errorf("tcp: %w", transport.ErrClosed)
	errListenerClosed  = fmt.Errorf("tcp: %w: its listener was closed", transport.ErrClosed)
	errConnClosed      = fmt.Errorf("tcp: %w", transport.ErrClosed)
	errPeerClosed      = fmt.Errorf("tcp: %w", transport.ErrPeerClosed)
	errPipeClosed      = fmt.Errorf("tcp: pipe: %w", transport.ErrClosed)

	// errPipeAbandoned is returned to the writer of a pipe after its reader has closed
	// it.
	errPipeAbandoned = fmt.Errorf("tcp: pipe is no longer read: %w", transport.ErrPeerClosed)

	// errNoSocket is returned by OpenPipe when the peer failed to dial.
	errNoSocket = errors.New("tcp: open a pipe: the peer, which dials all sockets of this connection, could not dial one")
)

var (
	errUnknownConn = errors.New("the peer names an unknown connection")
	errProof       = errors.New("the peer does not prove that it has the key of the connection")
)

// gone returns an error that wraps [transport.ErrPeerGone] with the reason as text.
func gone(why error) error {
	if why == io.EOF || why == io.ErrUnexpectedEOF || errors.Is(why, syscall.ECONNRESET) {
		why = errors.New("its process ended without Close, or has given the connection up: no close message on the control socket")
	}
	// why is not wrapped, as it may contain an error of a close on this side.
	return fmt.Errorf("tcp: %w: %s", transport.ErrPeerGone, why)
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// dialError adds the address, and the error of package transport for the failure.
func dialError(addr string, err error) error {
	return fmt.Errorf("tcp: dial %s: %w", addr, handshakeError(err))
}

func handshakeError(err error) error {
	op, _ := errors.AsType[*net.OpError](err)
	header, _ := errors.AsType[tls.RecordHeaderError](err)
	switch {
	case errors.Is(err, transport.ErrIdentity), errors.Is(err, transport.ErrClosed):
		return err
	case isUntrusted(err):
		return fmt.Errorf("%w: %w", transport.ErrIdentity, err)
	case op != nil && op.Op == "remote error" && certificateAlert(op.Err):
		return fmt.Errorf("%w: the peer rejected the certificate of this node: %w", transport.ErrIdentity, err)
	case err == io.EOF, err == io.ErrUnexpectedEOF:
		return &closedError{err}
	case isTimeout(err):
		return fmt.Errorf("%w: no answer", transport.ErrPeerGone)
	case op != nil && op.Op != "remote error", header.Msg != "":
		return fmt.Errorf("%w: %w", transport.ErrPeerGone, err)
	}
	return err
}

// isBroken reports whether a handshake has failed because its socket has ended, possibly before it was connected.
func isBroken(err error) bool {
	op, _ := errors.AsType[*net.OpError](err)
	hasEnded := err == io.EOF || err == io.ErrUnexpectedEOF || op != nil && (op.Op == "read" || op.Op == "write") ||
		errors.Is(err, syscall.ECONNABORTED) || errors.Is(err, syscall.ECONNRESET)
	return hasEnded && !isTimeout(err) && !errors.Is(err, transport.ErrIdentity)
}

// A closedError says that the peer has closed the socket during the handshake. It wraps the error of the socket.
type closedError struct{ err error }

func (e *closedError) Error() string {
	return fmt.Sprintf("%v: it closed the socket: it does not serve this transport, or has too many unauthenticated connections", transport.ErrPeerGone)
}

func (e *closedError) Unwrap() []error { return []error{transport.ErrPeerGone, e.err} }

// isUntrusted reports whether crypto/tls has refused the certificate of the peer.
func isUntrusted(err error) bool {
	_, verification := errors.AsType[*tls.CertificateVerificationError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, host := errors.AsType[x509.HostnameError](err)
	_, invalid := errors.AsType[x509.CertificateInvalidError](err)
	return verification || authority || host || invalid
}

// certificateAlert reports whether a TLS alert (RFC 8446, section 6.2) is about a
// certificate: bad_certificate to unknown_ca, access_denied, decrypt_error for a wrong
// signature, certificate_required. Its type is not exported, but tls.AlertError has the
// same texts.
func certificateAlert(err error) bool {
	for _, alert := range [...]tls.AlertError{42, 43, 44, 45, 46, 48, 49, 51, 116} {
		if err.Error() == alert.Error() {
			return true
		}
	}
	return false
}
