package tcp

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/nexar-go/nexar/transport"
)

var (
	errTransportClosed = fmt.Errorf("tcp: %w", transport.ErrClosed)
	errListenerClosed  = fmt.Errorf("tcp: %w: its listener was closed", transport.ErrClosed)
	errConnClosed      = fmt.Errorf("tcp: %w", transport.ErrClosed)
	errPeerClosed      = fmt.Errorf("tcp: %w", transport.ErrPeerClosed)
	errPipeClosed      = fmt.Errorf("tcp: pipe: %w", transport.ErrClosed)

	// errPipeAbandoned is what the writer of a pipe gets when its reader has
	// closed it.
	errPipeAbandoned = fmt.Errorf("tcp: pipe is no longer read: %w", transport.ErrPeerClosed)

	// errNoSocket is what OpenPipe gets when the peer has not dialed.
	errNoSocket = errors.New("tcp: the peer, which dials all sockets of this conn, could not open one for a pipe")
)

// gone says that the peer counts as gone, and why.
func gone(why error) error {
	if why == io.EOF || why == io.ErrUnexpectedEOF {
		why = errors.New("its control socket was closed without a good-bye")
	}
	// Without the chain of why, which may say that something was closed here.
	return fmt.Errorf("tcp: %w: %s", transport.ErrPeerGone, why)
}

func isTimeout(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }

// dialError names the address and says with transport's words what went wrong.
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
		return fmt.Errorf("%w: the peer refuses our certificate: %w", transport.ErrIdentity, err)
	case err == io.EOF, err == io.ErrUnexpectedEOF:
		return fmt.Errorf("%w: it has closed the socket, as one does that takes no conns of this transport, or has no room now", transport.ErrPeerGone)
	case isTimeout(err):
		return fmt.Errorf("%w: no answer", transport.ErrPeerGone)
	case op != nil && op.Op != "remote error", header.Msg != "":
		return fmt.Errorf("%w: %w", transport.ErrPeerGone, err)
	}
	return err
}

// isUntrusted reports whether crypto/tls has refused the peer's certificate.
func isUntrusted(err error) bool {
	_, verification := errors.AsType[*tls.CertificateVerificationError](err)
	_, authority := errors.AsType[x509.UnknownAuthorityError](err)
	_, host := errors.AsType[x509.HostnameError](err)
	_, invalid := errors.AsType[x509.CertificateInvalidError](err)
	return verification || authority || host || invalid
}

// certificateAlert reports whether a TLS alert (RFC 8446, section 6.2) is about
// a certificate: bad_certificate to unknown_ca, access_denied and decrypt_error
// for a wrong signature, certificate_required. The type of alerts is not
// exported, but another one with the same texts is.
func certificateAlert(err error) bool {
	for _, alert := range [...]tls.AlertError{42, 43, 44, 45, 46, 48, 49, 51, 116} {
		if err.Error() == alert.Error() {
			return true
		}
	}
	return false
}
