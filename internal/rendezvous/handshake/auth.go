package handshake

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// Call opens the joining protocol on the dialing side: it proves the token to the seed,
// verifies the proof of the seed, and returns the name of the cluster. The caller proves the
// token first: otherwise a seed would give a proof to every client.
func (c *Conn) Call(ctx context.Context, token pki.Token, step time.Duration) (cluster string, err error) {
	secured := c.Secured()
	if secured == nil {
		return "", errors.New("connection is not secured by TLS")
	}
	token = token.Offered()
	if err := token.Check(c.RemoteAddr()); err != nil {
		return "", fmt.Errorf("%w: %w", ErrToken, err)
	}
	state := secured.ConnectionState()
	hello := wire.JoinHello{Version: wire.Version}
	if !token.IsZero() {
		if hello.Proof, err = token.Proof(pki.NodeRole, state); err != nil {
			return "", err
		}
	}
	deadline := time.Now().Add(step)
	if err := c.Open(ctx); err != nil {
		return "", err
	}
	if err := c.Write(deadline, hello); err != nil {
		return "", err
	}
	if err := c.accept(ctx, deadline); err != nil {
		return "", fmt.Errorf("no answer: %w", err)
	}
	m, err := c.ReadReply(deadline)
	if err != nil {
		if r, ok := errors.AsType[*RefusedError](err); ok {
			r.Unproved = true
		}
		return "", err
	}
	answer, ok := m.(wire.JoinAnswer)
	if !ok {
		return "", fmt.Errorf("%w: it answered with a %T", ErrFalseSeed, m)
	}
	if token.IsZero() {
		if len(answer.Proof) > 0 {
			return "", fmt.Errorf("%w: this node has none, the cluster has one (NEXAR_CLUSTER_TOKEN)", ErrToken)
		}
		return answer.Cluster, nil
	}
	if bytes.Equal(answer.Proof, hello.Proof) {
		return "", fmt.Errorf("%w: it returned this node's proof", ErrFalseSeed)
	}
	if ok, err := token.Verify(answer.Proof, pki.SeedRole, state); err != nil || !ok {
		return "", errors.Join(ErrFalseSeed, err)
	}
	return answer.Cluster, nil
}

// Answer is the accepting side of [Conn.Call]. The client must prove the token by the deadline;
// before that the seed sends only the reason of a refusal. The name of the cluster may be empty
// as long as the seeds have not agreed on one.
func (c *Conn) Answer(ctx context.Context, deadline time.Time, token pki.Token, cluster func() string) error {
	secured := c.Secured()
	if secured == nil {
		return errors.New("connection is not secured by TLS")
	}
	if err := c.accept(ctx, deadline); err != nil {
		return err
	}
	m, err := c.Read(deadline, wire.HelloBytesMax)
	if err != nil {
		return ReadError(err)
	}
	hello, ok := m.(wire.JoinHello)
	if !ok {
		return Refuse(wire.RefusedMalformed, "the first message was %T", m)
	}
	answer := wire.JoinAnswer{Cluster: cluster()}
	if answer.Proof, err = checkProof(token, hello.Proof, secured); err != nil {
		return err
	}
	if p := transport.CapabilitiesOf(c.Conn).Authenticator; p != nil && !p.MarkAuthenticated() {
		return cmp.Or(c.Err(), transport.ErrClosed) // The connection was evicted meanwhile.
	}
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	if err := c.Open(ctx); err != nil {
		return err
	}
	return c.Write(deadline, answer)
}

// checkProof verifies the proof of a node, and returns the proof of the seed.
func checkProof(token pki.Token, proof []byte, secured transport.TLSConn) ([]byte, error) {
	switch {
	case token.IsZero() && len(proof) > 0:
		return nil, Refuse(wire.RefusedToken, "the node has a cluster token (NEXAR_CLUSTER_TOKEN), this cluster has none")
	case token.IsZero():
		return nil, nil
	case len(proof) == 0:
		return nil, Refuse(wire.RefusedToken, "the node has no cluster token (NEXAR_CLUSTER_TOKEN)")
	}
	state := secured.ConnectionState()
	for _, t := range token.Accepted() {
		if ok, err := t.Verify(proof, pki.NodeRole, state); err != nil {
			return nil, err
		} else if ok {
			return t.Proof(pki.SeedRole, state)
		}
	}
	return nil, Refuse(wire.RefusedToken, "wrong cluster token (NEXAR_CLUSTER_TOKEN)")
}

// ReadError turns a message that cannot be parsed into a Refusal. It returns errors of the
// connection unchanged.
func ReadError(err error) error {
	if v, ok := errors.AsType[*wire.VersionError](err); ok {
		return Refuse(wire.RefusedVersion, "the node speaks version %d of the nexar protocol, this cluster version %d", v.Theirs, v.Ours)
	}
	for _, broken := range []error{io.EOF, io.ErrUnexpectedEOF, os.ErrDeadlineExceeded, transport.ErrClosed, transport.ErrPeerClosed, transport.ErrPeerGone} {
		if errors.Is(err, broken) {
			return err
		}
	}
	return Refuse(wire.RefusedMalformed, "not a message of nexar: %w", err)
}
