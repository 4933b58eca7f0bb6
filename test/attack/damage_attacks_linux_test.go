package attack

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/testhost"
)

// damageAttacks are attacks on packets between hosts.
func damageAttacks() []attack {
	return []attack{
		{"corruption, reordering", "2 % of the frames with a flipped bit, 5 % overtaken and 1 % repeated remove no node, over QUIC, TLS and plain TCP", 20 * time.Second, false, attackDamage},
		{"forged packets, QUIC", "2 % of the packets altered with a repaired checksum remove no node", 20 * time.Second, false, attackForgedQUIC},
		{"forged segment, TLS", "an altered segment with a repaired checksum never changes a result; at most one end of its link is removed", 15 * time.Second, false, attackForgedTLS},
	}
}

// attackDamage has a switch damage frames as faulty hardware does. Checksums detect that;
// over plain TCP nothing else does.
func attackDamage(t *testing.T, rng *rand.Rand) {
	n := testhost.New(t, 3, testhost.IPv4)
	s := newSwitch(t, rng, n)
	w := newWorld(t, rng, networkTransports(rng), []string{"NEXAR_PLAIN_BULK=0", "NEXAR_PLAIN_BULK=1"}[rng.IntN(2)])
	s.set(faults{flip: 0.02, late: 0.05, repeat: 0.01})
	w.startOnHosts(n, arguments{})
	w.waitForSteps(40)
	if s.flipped.Load() < 10 || s.delayed.Load() < 10 {
		t.Errorf("only %d frames were damaged and %d delayed", s.flipped.Load(), s.delayed.Load())
	}
	s.set(faults{}) // other attacks cover closing
	w.finish()
}

// attackForgedQUIC alters packets as an attacker on the path does.
func attackForgedQUIC(t *testing.T, rng *rand.Rand) {
	n := testhost.New(t, 3, testhost.IPv4)
	s := newSwitch(t, rng, n)
	w := newWorld(t, rng, "NEXAR_TRANSPORTS=quic")
	s.set(faults{forge: 0.02, late: 0.05})
	w.startOnHosts(n, arguments{})
	w.waitForSteps(40)
	if s.forged.Load() < 10 {
		t.Errorf("only %d packets were forged", s.forged.Load())
	}
	s.set(faults{})
	w.finish()
}

// attackForgedTLS alters a single segment: any byte, or the length of a TLS record, so that its reader waits for bytes that never come.
func attackForgedTLS(t *testing.T, rng *rand.Rand) {
	n := testhost.New(t, 4, testhost.IPv4)
	s := newSwitch(t, rng, n)
	w := newWorld(t, rng, "NEXAR_TRANSPORTS=tcp,quic")
	w.startOnHosts(n, arguments{})
	w.waitForSteps(5)
	s.set(faults{forge: 1, once: true, length: rng.IntN(2) == 0})
	time.Sleep(2 * time.Second)
	s.set(faults{})
	if s.forged.Load() == 0 {
		t.Error("no segment was forged")
	}
	w.settleLink(w.ranks[s.ends[0]], w.ranks[s.ends[1]])
	w.waitForSteps(5)
	w.finish()
}
