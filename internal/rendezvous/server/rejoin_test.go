package server

import (
	"context"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/pki"
	"github.com/nexar-go/nexar/internal/rendezvous/client"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
)

// An impostor has the token of a cluster, the certificate of its CA and that of a node, but not the key of the CA.
type impostor struct {
	token    pki.Token
	cluster  string
	admitted wire.JoinAdmitted
	requests chan wire.JoinMessage // of nodes that have taken it for a seed
}

// serve answers nodes until ctx ends.
func (f *impostor) serve(ctx context.Context, tr *tlsTransport) {
	for {
		conn, err := tr.Accept(ctx)
		if err != nil {
			return
		}
		c := handshake.New(conn)
		err = c.Answer(ctx, time.Now().Add(quick.Hello), f.token, func() string { return f.cluster })
		if err == nil {
			var m wire.JoinMessage
			if m, err = c.Read(time.Now().Add(quick.Step), wire.JoinBytesMax); err == nil {
				f.requests <- m
				err = c.Write(time.Now().Add(quick.Step), f.admitted)
			}
		}
		if err != nil {
			conn.Close()
		}
	}
}

// TestRejoinChecksTheSeed: a node without a CA of the user verifies the certificate of the seed when it rejoins. It
// refuses a process that has the token and all certificates of the cluster, but not the key of its CA, and
// goes on searching.
func TestRejoinChecksTheSeed(t *testing.T) {
	c := newCluster(t, 1, 1, nil)
	log := new(logbook)
	req := (&testSeed{token: c.token}).request(0)
	req.Log = log.logger()
	s, err := client.Seeds{Addrs: c.addrs, Dial: dialTLS, Log: log.logger()}.Join(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Ready(t.Context()); err != nil {
		t.Fatal(err)
	}
	own, err := s.Identity.Server().GetCertificate(nil)
	if err != nil {
		t.Fatal(err)
	}
	f := &impostor{token: c.token, cluster: s.Identity.Cluster(), requests: make(chan wire.JoinMessage, 100), admitted: wire.JoinAdmitted{
		Certificate: own.Certificate[0], CA: c.seeds[0].authority().Certificate(), ID: s.ID, Observed: "127.0.0.1:1", World: 1, Durable: true,
	}}

	c.stop(0)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	tr := c.listen(c.addrs[0])
	served := make(chan struct{})
	go func() {
		defer close(served)
		f.serve(ctx, tr)
	}()
	const refusal = "it is not a seed of cluster"
	until(t, "the node has reached the false seed", func() bool { return len(f.requests) > 0 || strings.Contains(log.String(), refusal) }, log)
	cancel()
	tr.Close()
	<-served
	if len(f.requests) > 0 {
		t.Errorf("the node has sent a %T to the false seed", <-f.requests)
	}
	c.start(0)
	log.wait(t, "connected to a seed again")
}

// TestAdoptedAuthority: the certificates of all seeds were signed by the CA of the cluster, also after a restart.
func TestAdoptedAuthority(t *testing.T) {
	c := newCluster(t, 3, 1, nil)
	c.form(1)
	check := func(when string) {
		t.Helper()
		for i := range c.seeds {
			until(t, when+": the seed has a certificate of the cluster", func() bool { return c.certified(i) == nil }, c)
		}
	}
	check("at first")
	c.restart()
	check("after a restart")
}

// certified returns an error unless the certificate of a seed is that of the cluster.
func (c *testCluster) certified(i int) error {
	a := c.seeds[i].authority()
	if a == nil {
		return errors.New("there is no authority yet")
	}
	cert, err := c.trs[i].conf.GetCertificate(nil)
	if err != nil {
		return err
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		return err
	}
	ca, err := x509.ParseCertificate(a.Certificate())
	if err != nil {
		return err
	}
	return leaf.CheckSignatureFrom(ca)
}

// The refusal of the second Join of a process says so. A process of another container may have the same host name and ID.
func TestSecondJoinOfAProcess(t *testing.T) {
	s := newSeed(t, 2, nil)
	const words = "This is the second Join of process host0:1000"
	rank := 0
	first := s.request(0)
	first.Rank, first.Process = &rank, "pid:[1]/1"
	if _, err := s.join(t, first); err != nil {
		t.Fatal(err)
	}
	_, err := s.join(t, first)
	says(t, err, membership.ErrRank, "0 is already taken", words)
	container, host := first, first
	container.Process, host.Host, host.Name = "pid:[2]/1", "another host", "host9:1000"
	for _, other := range []client.Request{container, host} {
		if _, err := s.join(t, other); !errors.Is(err, membership.ErrRank) || strings.Contains(err.Error(), words) {
			t.Errorf("error %v, want that the rank is taken, without a second Join", err)
		}
	}
	second := s.mustJoin(t, 1)
	first.Rank = nil
	_, err = s.join(t, first)
	says(t, err, membership.ErrFull, "all 2 places are taken", words)
	second.Close()
}

// A pod is started again on another host, while the pod before lives: an elastic world removes the pod before, with the name of its
// successor in the error, and admits the new one. The pod before cannot take the place back.
func TestPodMovesToAnotherHost(t *testing.T) {
	pod := func(s *testSeed, i int, host string) client.Request {
		req := s.request(i)
		req.Host, req.Place = host, "1/train-1"
		return req
	}
	world := func(change func(*Config)) (s *testSeed, other, old *client.Session) {
		s = newSeed(t, 2, change)
		other = s.mustJoin(t, 0)
		old, err := s.join(t, pod(s, 1, "a"))
		if err != nil {
			t.Fatal(err)
		}
		s.form(t, other, old)
		return s, other, old
	}
	s, other, old := world(elastic(2, nil))
	moved, err := s.join(t, pod(s, 2, "b"))
	if err != nil {
		t.Fatal(err)
	}
	if v := next(t, other, 1); v.Size() != 1 || v.Nodes[0].ID != other.ID {
		t.Errorf("the next view is %+v, want that the pod before is removed", v)
	}
	_, err = old.Next(t.Context(), 1)
	if removed, ok := errors.AsType[*client.RemovedError](err); !ok || removed.Excluded || !strings.Contains(removed.Text, moved.Observed+" (host2:1002) has taken its place 1/train-1 on another host") {
		t.Errorf("the pod before: %v, want that it is removed, and who has its place", err)
	}
	_, err = s.join(t, pod(s, 3, "a"))
	says(t, err, membership.ErrOver, "1/train-1 runs on another host now")
	i := begin(t, moved, 0)
	if i.View.Size() != 2 {
		i = begin(t, moved, i.Number) // The first one was to the world with the pod before.
	}
	moved.Linked(i.Number)
	confirm(moved, other)
	until(t, "the world is asked to quiesce", func() bool { return other.IsQuiescing(2) }, s.log)
	other.Quiesced(2, false, time.Minute)
	if v := next(t, moved, 2); v.Size() != 2 {
		t.Errorf("view %+v, want one with the new pod", v)
	}
	if _, err := s.join(t, pod(s, 4, "c")); err != nil {
		t.Errorf("the pod moves again: %v", err)
	}

	s, _, old = world(nil) // A world of a fixed size has no place for it.
	_, err = s.join(t, pod(s, 2, "b"))
	says(t, err, membership.ErrOver, "not elastic", old.Observed+" (host1:1001) is the process before this one, and still runs")
}

// The rank that a launcher tells counts only in the formation of a world of the size that the launcher tells.
func TestRankOfALauncher(t *testing.T) {
	s := newSeed(t, 2, elastic(2, nil))
	join := func(i, rank, size int) *client.Session {
		req := s.request(i)
		req.Rank, req.Size = &rank, size
		session, err := s.join(t, req)
		if err != nil {
			t.Fatal(err)
		}
		return session
	}
	one := join(0, 1, 2)
	other := join(1, 1, 4)
	v, err := one.View(t.Context())
	if err != nil || v.Nodes[1].ID != one.ID || v.Nodes[0].ID != other.ID {
		t.Errorf("view %v, %v, want rank 1 for the process of a world of 2", v, err)
	}
	s.form(t, one, other)
	begin(t, join(2, 1, 2), 0)
}
