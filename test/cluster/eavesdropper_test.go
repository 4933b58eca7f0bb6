package cluster

import (
	"bytes"
	"net"
	"net/netip"
	"sync"
	"testing"
)

// An eavesdropper forwards the packets between nodes and a seed and keeps copies, as an attacker on the
// path could.
type eavesdropper struct {
	t    *testing.T
	in   *net.UDPConn
	seed netip.AddrPort
	all  sync.WaitGroup

	mu       sync.Mutex
	outs     map[netip.AddrPort]*net.UDPConn // to the seed, by client
	captured bytes.Buffer
}

func newEavesdropper(t *testing.T, seed string) *eavesdropper {
	t.Helper()
	in, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	r := &eavesdropper{t: t, in: in, seed: netip.MustParseAddrPort(seed), outs: make(map[netip.AddrPort]*net.UDPConn)}
	r.all.Go(r.run)
	t.Cleanup(r.close)
	return r
}

func (r *eavesdropper) addr() string { return r.in.LocalAddr().String() }

func (r *eavesdropper) run() {
	for b := make([]byte, 1<<16); ; {
		n, from, err := r.in.ReadFromUDPAddrPort(b)
		if err != nil {
			return
		}
		if out := r.out(from); out != nil {
			r.capture(b[:n])
			out.Write(b[:n])
		}
	}
}

// out returns the socket for the packets of a client, and forwards the answers.
func (r *eavesdropper) out(client netip.AddrPort) *net.UDPConn {
	r.mu.Lock()
	defer r.mu.Unlock()
	if out := r.outs[client]; out != nil {
		return out
	}
	out, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(r.seed))
	if err != nil {
		r.t.Error(err)
		return nil
	}
	r.outs[client] = out
	r.all.Go(func() {
		for b := make([]byte, 1<<16); ; {
			n, err := out.Read(b)
			if err != nil {
				return
			}
			r.capture(b[:n])
			r.in.WriteToUDPAddrPort(b[:n], client)
		}
	})
	return out
}

func (r *eavesdropper) capture(p []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.captured.Write(p)
}

// seen returns all packets so far.
func (r *eavesdropper) seen() []byte {
	r.mu.Lock()
	defer r.mu.Unlock()
	return bytes.Clone(r.captured.Bytes())
}

func (r *eavesdropper) close() {
	r.in.Close()
	r.mu.Lock()
	for _, out := range r.outs {
		out.Close()
	}
	r.mu.Unlock()
	r.all.Wait()
}
