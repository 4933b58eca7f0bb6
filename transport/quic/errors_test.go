package quic

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	quicgo "github.com/quic-go/quic-go"

	"github.com/nexar-go/nexar/transport"
)

// TestPeerReasonIsEscaped checks that the reason of a peer for closing a connection is
// escaped for terminals.
func TestPeerReasonIsEscaped(t *testing.T) {
	const hostile, want = "\x1b[31mred\n\xff", `\x1b[31mred\n\xff`
	for name, err := range map[string]error{
		"gone":      &quicgo.ApplicationError{Remote: true, ErrorCode: codeGone, ErrorMessage: hostile},
		"refused":   &quicgo.ApplicationError{Remote: true, ErrorCode: codeRefused, ErrorMessage: hostile},
		"unknown":   &quicgo.ApplicationError{Remote: true, ErrorCode: 99, ErrorMessage: hostile},
		"protocol":  &quicgo.TransportError{Remote: true, ErrorCode: quicgo.ProtocolViolation, ErrorMessage: hostile},
		"busy":      &quicgo.TransportError{Remote: true, ErrorCode: quicgo.ConnectionRefused, ErrorMessage: hostile},
		"identity":  &quicgo.TransportError{Remote: true, ErrorCode: 0x100 + 42, ErrorMessage: hostile},
		"our alert": &quicgo.TransportError{ErrorCode: 0x100 + 42, ErrorMessage: hostile},
	} {
		for what, got := range map[string]error{"end": endError(err), "dial": dialError("host:1", err), "pipe": pipeError(err)} {
			if text := got.Error(); !strings.Contains(text, want) || !utf8.ValidString(text) || strings.ContainsAny(text, "\x1b\n") {
				t.Errorf("%s, %s: error %q, want one with %s", name, what, text, want)
			}
		}
	}
	if err := endError(&quicgo.ApplicationError{Remote: true, ErrorCode: codeGone}); !errors.Is(err, transport.ErrPeerGone) {
		t.Errorf("error %v, want %v", err, transport.ErrPeerGone)
	}
}

// A client may get a forged Version Negotiation packet: it does not say that this side has closed.
func TestNoVersionIsNotClosed(t *testing.T) {
	if err := dialError("host:1", &quicgo.VersionNegotiationError{Theirs: []quicgo.Version{9}}); errors.Is(err, transport.ErrClosed) {
		t.Errorf("error %v wraps %v", err, transport.ErrClosed)
	}
}
