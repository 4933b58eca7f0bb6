package tcp

import (
	"crypto/tls"
	"errors"
	"sync/atomic"
)

// The socket of a pipe resumes the TLS session of the control socket (RFC 8446, section
// 2.2): a secret of that session, known to the two ends of the conn only, takes the place
// of certificates and proofs. The key exchange is a new one, so each socket has its own
// keys. ADR 73 argues why this is safe.
//
// The ticket is the number of the conn. The accepting side stores the session in the
// conn, so the session ends with it, and no key decrypts tickets. The server of a pipe
// sends a ticket too, since crypto/tls always does. The dialer reads it before the
// confirmation, and ignores it: an unread one would reset the socket when it is closed.
//
// Where one side cannot resume the session, or the certificates of the control socket
// are no longer valid, the socket makes a handshake with the current certificates, and
// proofs follow (hello.go).

// configure returns a copy of a TLS configuration of [Credentials], changed by sessions.
// It changes the results of GetConfigForClient in the same way. If sessions is nil, the
// copy neither issues tickets nor uses them.
func configure(conf *tls.Config, sessions func(conf *tls.Config)) *tls.Config {
	conf = conf.Clone()
	// Small first records only help readers that display data as it arrives.
	conf.DynamicRecordSizingDisabled = true
	conf.ClientSessionCache, conf.WrapSession, conf.UnwrapSession = nil, nil, nil
	// crypto/tls calls VerifyPeerCertificate only in a handshake with certificates.
	conf.SessionTicketsDisabled = sessions == nil || conf.VerifyPeerCertificate != nil
	if sessions != nil {
		sessions(conf)
	}
	if choose := conf.GetConfigForClient; choose != nil {
		conf.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(hello)
			if chosen == nil || err != nil {
				return nil, err
			}
			return configure(chosen, sessions), nil
		}
	}
	return conf
}

// A sessionStore stores the session of a dialed control socket. It implements
// [tls.ClientSessionCache] for this socket, which resumes no session itself.
type sessionStore struct {
	session atomic.Pointer[tls.ClientSessionState]
}

func (s *sessionStore) Get(string) (*tls.ClientSessionState, bool) { return nil, false }

func (s *sessionStore) Put(_ string, session *tls.ClientSessionState) { s.session.Store(session) }

// A sessionOffer is the [tls.ClientSessionCache] of the socket of a pipe. It always
// returns the session of the control socket.
type sessionOffer struct{ session *tls.ClientSessionState }

func (o sessionOffer) Get(string) (*tls.ClientSessionState, bool) { return o.session, true }
func (o sessionOffer) Put(string, *tls.ClientSessionState)        {}

// clientOfControl returns the TLS configuration for dialing the control socket of a conn
// to peer. The session is stored in m.
func (t *Transport) clientOfControl(peer string, m *controlHandshake) *tls.Config {
	conf := t.creds.Client(peer)
	if t.cfg.Plain {
		return configure(conf, nil)
	}
	return configure(conf, func(conf *tls.Config) { conf.ClientSessionCache = &m.dialedSession })
}

// serverOfControl returns the TLS configuration for an accepted control socket. The
// session is stored in m.
func (t *Transport) serverOfControl(m *controlHandshake) *tls.Config {
	if t.cfg.Plain {
		return configure(t.server, nil)
	}
	return configure(t.server, func(conf *tls.Config) {
		conf.WrapSession = func(state tls.ConnectionState, session *tls.SessionState) ([]byte, error) {
			k, err := deriveKeys(state)
			if err == nil {
				m.acceptedSession, err = session.Bytes()
			}
			return k.id[:], err
		}
		conf.UnwrapSession = func([]byte, tls.ConnectionState) (*tls.SessionState, error) { return nil, nil }
	})
}

// clientOfPipe returns the TLS configuration for dialing the socket of a pipe.
func (c *conn) clientOfPipe() *tls.Config {
	session := c.dialedSession
	return configure(c.t.creds.Client(c.peer), func(conf *tls.Config) {
		if session != nil && c.stillValid(conf, c.tls.ConnectionState()) {
			conf.ClientSessionCache = sessionOffer{session}
		} else {
			conf.SessionTicketsDisabled = true
		}
	})
}

// serverOfPipe returns the TLS configuration for an accepted socket of a pipe. If the
// socket resumes a session, resumed is set to the conn of the session.
func (t *Transport) serverOfPipe(resumed **conn) *tls.Config {
	return configure(t.server, func(conf *tls.Config) {
		conf.WrapSession = func(tls.ConnectionState, *tls.SessionState) ([]byte, error) { return []byte{0}, nil }
		conf.UnwrapSession = func(ticket []byte, state tls.ConnectionState) (*tls.SessionState, error) {
			var id connID
			if len(ticket) != len(id) {
				return nil, nil
			}
			copy(id[:], ticket)
			c := t.connByID(id)
			if c == nil || c.acceptedSession == nil {
				return nil, nil
			}
			// GetConfigForClient may depend on these two.
			control := c.tls.ConnectionState()
			if state.NegotiatedProtocol != control.NegotiatedProtocol || state.ServerName != control.ServerName {
				return nil, nil
			}
			if !c.stillValid(conf, control) {
				return nil, nil
			}
			session, err := tls.ParseSessionState(c.acceptedSession)
			if err != nil {
				return nil, err
			}
			*resumed = c
			return session, nil
		}
	})
}

// stillValid reports whether the certificate of the control socket is valid now. If it is
// not, a handshake shows whether the peer has a newer one.
func (c *conn) stillValid(conf *tls.Config, control tls.ConnectionState) bool {
	if conf.VerifyConnection != nil && conf.VerifyConnection(control) != nil {
		return false
	}
	_, err := c.t.identify(control, c.peer)
	return err == nil
}

// errOtherConn is the reason to refuse the socket of a pipe with the session of another
// conn than the claimed one.
var errOtherConn = errors.New("it resumes the TLS session of another connection than the one it is for")
