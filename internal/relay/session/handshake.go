package session

import (
	"context"
	"crypto/tls"
	"fmt"
	"strings"
	"time"

	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/transport"
)

const (
	// handshakeMax is the maximum number of bytes of a handshake that a side accepts.
	handshakeMax = 256 << 10
	// handshakePiece is the maximum number of bytes of a handshake in one frame.
	handshakePiece = 8 << 10
	// abortMax is the maximum length of the reason in an Abort frame.
	abortMax = 256
)

// A handshake is the TLS 1.3 handshake of a session. crypto/tls exchanges handshake messages
// without records for QUIC (RFC 9001, section 4); here frames of kind Handshake carry them.
type handshake struct {
	conn  *tls.QUICConn
	out   outbound
	in    inbound
	bytes int  // received
	done  bool // on this side
}

// begin starts the handshake.
func (s *Session) begin(now time.Time) error {
	cfg := s.cfg.TLS.Clone()
	cfg.MinVersion = tls.VersionTLS13
	quic := &tls.QUICConfig{TLSConfig: cfg}
	if s.client {
		s.handshake.conn = tls.QUICClient(quic)
	} else {
		s.handshake.conn = tls.QUICServer(quic)
	}
	s.handshake.conn.SetTransportParameters(nil)
	if err := s.handshake.conn.Start(context.Background()); err != nil {
		err = fmt.Errorf("relay: start the handshake with %v: %w", s.cfg.Peer, err)
		s.refuse(now, err)
		return err
	}
	return s.advance(now)
}

// advance handles the events of the TLS handshake.
func (s *Session) advance(now time.Time) error {
	for {
		switch e := s.handshake.conn.NextEvent(); e.Kind {
		case tls.QUICNoEvent:
			return nil
		case tls.QUICWriteData:
			for data := e.Data; len(data) > 0; {
				piece := data[:min(len(data), handshakePiece)]
				data = data[len(piece):]
				f := s.frame(forward.Handshake, s.handshake.out.next())
				f.Payload = append([]byte{byte(e.Level)}, piece...)
				s.handshake.out.add(now, f)
				s.emit(f)
				s.restart(now)
			}
		case tls.QUICHandshakeDone:
			if err := s.authenticated(now); err != nil {
				return err
			}
		}
	}
}

// authenticated ends the handshake of this side: it checks that the peer has the expected
// identity, and derives the keys.
func (s *Session) authenticated(now time.Time) error {
	s.tls = s.handshake.conn.ConnectionState()
	id, err := s.cfg.Identify(s.tls)
	if err == nil && id != s.cfg.Peer.String() {
		err = fmt.Errorf("%w: it is %q", transport.ErrIdentity, id)
	}
	if err == nil {
		s.keys, err = s.exportKeys(&s.tls)
	}
	if err != nil {
		err = fmt.Errorf("relay: handshake with %v: %w", s.cfg.Peer, err)
		s.refuse(now, err)
		return err
	}
	s.handshake.done = true
	if !s.client {
		s.established(now)
		s.acknowledge(now) // tells the client that the session is established
	}
	return nil
}

// established makes the session ready for pipes.
func (s *Session) established(now time.Time) {
	s.state = stateOpen
	s.handshake.out = outbound{}
	s.handshake.conn.Close()
	s.timer.backoff = 0
	s.probeAt = now.Add(s.cfg.Silence)
	s.restart(now)
	s.notify()
}

// refuse ends a handshake with an error and tells the peer.
func (s *Session) refuse(now time.Time, err error) {
	f := s.frame(forward.Abort, 0)
	reason := err.Error()
	f.Payload = []byte(reason[:min(len(reason), abortMax)])
	s.emit(f)
	s.end(now, err)
}

// receiveHandshake handles a Handshake frame.
func (s *Session) receiveHandshake(now time.Time, f forward.Frame) Verdict {
	h := &s.handshake
	if s.state != stateHandshake {
		if s.state == stateOpen && !s.client {
			s.acknowledgeAgain(now, &f) // The client may have missed the first acknowledgement.
		}
		return Repeated
	}
	if len(f.Payload) == 0 {
		return Unexpected
	}
	v := h.in.wants(&f)
	if v == Accepted {
		if h.bytes += len(f.Payload); h.bytes > handshakeMax {
			s.refuse(now, fmt.Errorf("relay: handshake of more than %d bytes from %v", handshakeMax, s.cfg.Peer))
			return Unexpected
		}
		h.in.add(f.Seq, f.Payload)
		for {
			p, ok := h.in.take()
			if !ok {
				break
			}
			if err := h.conn.HandleData(tls.QUICEncryptionLevel(p[0]), p[1:]); err != nil {
				s.refuse(now, fmt.Errorf("relay: handshake with %v: %w", s.cfg.Peer, err))
				return v
			}
			if s.advance(now) != nil || s.state != stateHandshake {
				return v
			}
		}
	}
	a := h.in.acks()
	ack := s.frame(forward.HandshakeAck, 0)
	ack.Payload = a.append(nil)
	s.emit(ack)
	return v
}

// receiveHandshakeAck handles a HandshakeAck frame. When the handshake of the client is done, only a sealed frame
// shows that the server has its end.
func (s *Session) receiveHandshakeAck(now time.Time, f forward.Frame) Verdict {
	a, ok := parseAcks(f.Payload)
	if s.state != stateHandshake || s.handshake.done || !ok {
		return Unexpected
	}
	s.acknowledged(now, &s.handshake.out, a)
	return Accepted
}

// receiveAbort handles an Abort frame. It has no authentication, so it counts during the handshake only.
func (s *Session) receiveAbort(now time.Time, f forward.Frame) Verdict {
	if s.state != stateHandshake {
		return Unexpected
	}
	reason := strings.ToValidUTF8(string(f.Payload[:min(len(f.Payload), abortMax)]), "?")
	s.end(now, fmt.Errorf("relay: %w: %v has refused the handshake: %q", transport.ErrPeerClosed, s.cfg.Peer, reason))
	return Accepted
}
