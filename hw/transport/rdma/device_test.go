//go:build linux

package rdma

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/hw/internal/verbs"
	"github.com/nexar-go/nexar/hw/internal/verbsfake"
	"github.com/nexar-go/nexar/transport"
)

// needDevices is needFake with these devices until the end of the test.
func needDevices(t *testing.T, devices ...verbsfake.Device) {
	t.Helper()
	needFake(t)
	fake.Configure(devices...)
	t.Cleanup(func() { fake.Configure(verbsfake.Device{Ports: []verbsfake.Port{{}}}) })
}

// routes connects two transports with configurations, and returns the routes of both sides.
func routes(t *testing.T, a, b Config) (routes [2]verbsfake.Route, names [2]string) {
	t.Helper()
	counters := new(Counters)
	x, y := connect(t, clusterOf(t, counters, a, b))
	for i, c := range []*conn{x, y} {
		r, ok := fake.Route(c.number)
		if !ok {
			t.Fatalf("queue pair %d has no route, or one of another port", c.number)
		}
		routes[i], names[i] = r, c.t.dev.d.Name
	}
	if err := stream(t.Context(), x, y, 5, func(int) {}); err != nil {
		t.Error(err)
	}
	wantNoFailure(t, counters)
	return routes, names
}

// TestRoute: queue pairs have the service level and the traffic class of their side, the smaller MTU of both, and the GID or the local
// identifier of the peer.
func TestRoute(t *testing.T) {
	first, second := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	local := netip.MustParseAddr("fe80::1")
	needDevices(t,
		verbsfake.Device{Ports: []verbsfake.Port{{Down: true}, {GID: first}}},
		verbsfake.Device{Ports: []verbsfake.Port{{LID: 7, GID: local, MTU: 2048}, {GID: second, MTU: 1024}}})
	type side struct {
		cfg    Config
		device string
		route  verbsfake.Route
	}
	for name, sides := range map[string][2]side{
		"the first active port": {
			{Config{}, "fake0", verbsfake.Route{Port: 2, MTU: 4096, GID: first}},
			{Config{}, "fake0", verbsfake.Route{Port: 2, MTU: 4096, GID: first}},
		},
		"classes": {
			{Config{ServiceLevel: 5, TrafficClass: 96}, "fake0", verbsfake.Route{Port: 2, MTU: 4096, GID: first, ServiceLevel: 5, TrafficClass: 96}},
			{Config{ServiceLevel: 15, TrafficClass: 255}, "fake0", verbsfake.Route{Port: 2, MTU: 4096, GID: first, ServiceLevel: 15, TrafficClass: 255}},
		},
		"MTUs of the configurations": {
			{Config{MTU: 2048}, "fake0", verbsfake.Route{Port: 2, MTU: 512, GID: first}},
			{Config{MTU: 512}, "fake0", verbsfake.Route{Port: 2, MTU: 512, GID: first}},
		},
		"devices with different MTUs": {
			{Config{}, "fake0", verbsfake.Route{Port: 2, MTU: 1024, GID: second}},
			{Config{Device: "fake1", Port: 2}, "fake1", verbsfake.Route{Port: 2, MTU: 1024, GID: first}},
		},
		"InfiniBand": {
			{Config{Device: "fake1"}, "fake1", verbsfake.Route{Port: 1, MTU: 2048, LID: 7}},
			{Config{Device: "fake1", Port: 1, MTU: 4096, ServiceLevel: 3}, "fake1", verbsfake.Route{Port: 1, MTU: 2048, LID: 7, ServiceLevel: 3}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, names := routes(t, sides[0].cfg, sides[1].cfg)
			for i, s := range sides {
				if got[i] != s.route || names[i] != s.device {
					t.Errorf("side %d: device %s, route %+v; want %s, %+v", i, names[i], got[i], s.device, s.route)
				}
			}
		})
	}
	for _, test := range []struct {
		cfg  Config
		want string
	}{
		{Config{Device: "fake0", Port: 1}, "device fake0: port 1 is down, or there is none: the device has 2"},
		{Config{Device: "fake1", Port: 3}, "device fake1: port 3 is down, or there is none: the device has 2"},
		{Config{Device: "fake2"}, `no RDMA device "fake2"; there are: fake0, fake1`},
	} {
		if dev, err := openDevice(test.cfg); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, %v; want %q", test.cfg, dev, err, test.want)
		}
	}
}

// TestNoRoute: the error of a GID that cannot be reached names both GIDs.
func TestNoRoute(t *testing.T) {
	needDevices(t, verbsfake.Device{Ports: []verbsfake.Port{{}}}, verbsfake.Device{Ports: []verbsfake.Port{{GID: netip.MustParseAddr("fe80::2")}}})
	cluster := clusterOf(t, new(Counters), Config{}, Config{Device: "fake1"})
	for _, x := range cluster.Transports {
		t.Cleanup(func() { x.Close() })
	}
	fake.Error("ibv_modify_qp", syscall.ENETUNREACH)
	defer fake.Error("", 0)
	_, err := cluster.Transports[0].Dial(t.Context(), cluster.Transports[1].Addr(), cluster.Identities[1])
	const want = "connect the queue pair of GID 10.0.0.1 to that of the peer, GID fe80::2, which needs a route there: verbs: ibv_modify_qp to RTR: network is unreachable"
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("dial: %v, want %q", err, want)
	}
}

// TestNoWindows: without memory windows, payloads are sent as messages, and nothing is written remotely.
func TestNoWindows(t *testing.T) {
	needDevices(t, verbsfake.Device{NoWindows: true, Ports: []verbsfake.Port{{}}})
	var counters Counters
	inWorld(t, 2, reach, &counters, func(ctx context.Context, node *nexar.Node) error {
		if err := reduceAll(ctx, node); err != nil {
			return err
		}
		return wantRDMA(node)
	})
	if a, _ := newPair(t); a.Capabilities().RemoteMemory != nil {
		t.Error("a conn without memory windows has the capability RemoteMemory")
	}
	if counters.Written() != 0 || counters.Copied() < 1<<20 {
		t.Errorf("%d bytes written remotely and %d copied; want none, and the vectors", counters.Written(), counters.Copied())
	}
}

// cacheOf opens a device with a limit of its cache.
func cacheOf(t *testing.T, limit int) *device {
	t.Helper()
	needFake(t)
	wantNoObjects(t)
	dev, err := openDevice(Config{CacheBytes: limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(dev.close)
	return dev
}

// TestCache: registrations of mapped memory stay in the cache up to its limit. The one that was not used for the longest time leaves it
// first, and ends with its last use.
func TestCache(t *testing.T) {
	const page = 64 << 10
	dev := cacheOf(t, 3*page)
	names := make(map[*transport.Mapping]string)
	mapped := make(map[string]*transport.Mapping)
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		m, err := transport.Map(page)
		if err != nil {
			t.Fatal(err)
		}
		mapped[name], names[m] = m, name
	}
	use := func(name string) *region {
		t.Helper()
		r, err := dev.register(mapped[name].Bytes()[100:200])
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	objects := fake.Live()
	// check compares the cache with names, the least recently used first, and the number of registrations with that of those and of others in use.
	check := func(after, want string, used int) {
		t.Helper()
		var got []string
		for _, c := range dev.order {
			got = append(got, names[c.m])
		}
		if strings.Join(got, "") != want || len(dev.cache) != len(want) || dev.bytes != page*len(want) {
			t.Errorf("after %s: order %q, %d entries, %d bytes; want %q, each of %d bytes", after, got, len(dev.cache), dev.bytes, want, page)
		}
		if n := fake.Live() - objects; n != len(want)+used {
			t.Errorf("after %s: %d registrations, want %d", after, n, len(want)+used)
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		use(name).release()
	}
	check("a, b and c", "abc", 0)
	use("a").release()
	check("the second use of a", "bca", 0)
	b := use("b")
	use("b").release()
	check("uses of b", "cab", 0)
	use("d").release()
	check("d", "abd", 0)
	use("e").release()
	check("e", "bde", 0)
	use("a").release()
	check("a again, while b is in use", "dea", 1)
	if again := use("b"); again.mr == b.mr {
		t.Error("a registration that has left the cache is used again")
	} else {
		again.release()
	}
	check("another registration of b", "eab", 1)
	b.release()
	check("the release of b", "eab", 0)
	a := use("a")
	mapped["a"].Free()
	check("the end of memory in use", "eb", 1)
	a.release()
	mapped["e"].Free()
	check("the end of memory", "b", 0)
	for _, name := range []string{"b", "c", "d"} {
		mapped[name].Free()
	}
	check("the end of all memory", "", 0)
	// A registration that exceeds the limit stays alone.
	long, err := transport.Map(4 * page)
	if err != nil {
		t.Fatal(err)
	}
	defer long.Free()
	r, err := dev.register(long.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	r.release()
	if len(dev.order) != 1 || dev.bytes != 4*page {
		t.Errorf("%d entries, %d bytes; want the long one alone", len(dev.order), dev.bytes)
	}
}

// TestCloseDuringUse: a device is freed with the last use of its memory, not before.
func TestCloseDuringUse(t *testing.T) {
	needFake(t)
	before := fake.Live()
	dev, err := openDevice(Config{})
	if err != nil {
		t.Fatal(err)
	}
	m, err := transport.Map(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	var regions []*region
	for _, memory := range [][]byte{m.Bytes(), make([]byte, 1000)} {
		r, err := dev.register(memory)
		if err != nil {
			t.Fatal(err)
		}
		regions = append(regions, r)
	}
	dev.close()
	for i, r := range regions {
		if n := fake.Live() - before; n != 4-i { // the device, its protection domain and the registrations
			t.Errorf("%d objects after the end of %d registrations, want %d", n, i, 4-i)
		}
		r.release()
	}
	if n := fake.Live() - before; n != 0 {
		t.Errorf("%d objects after the last use, want none", n)
	}
}

// TestAccess: registrations permit no remote access, so that a peer needs a window.
func TestAccess(t *testing.T) {
	needFake(t)
	a, b := newPair(t)
	m, err := transport.Map(64 << 10)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Free()
	for _, memory := range [][]byte{m.Bytes(), make([]byte, 64<<10)} {
		reg, err := b.Register(memory)
		if err != nil {
			t.Fatal(err)
		}
		g, err := reg.Grant(0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream(t.Context(), b, a, 1, func(int) {}); err != nil {
			t.Fatal(err)
		}
		if err := a.WriteRemote(t.Context(), g.Key(), 0, []byte{9}); err != nil || memory[0] != 9 {
			t.Errorf("remote write: %v", err)
		}
		reg.Deregister()
	}
	if got := fake.Accesses(); got != verbs.AccessLocalWrite|verbs.AccessWindowBind {
		t.Errorf("registrations had the access flags %#x, want those for local writes and for windows alone: %#x", got, verbs.AccessLocalWrite|verbs.AccessWindowBind)
	}
}

// TestForgedKeyNamesPeer: a write with a forged key changes no memory and ends the conn. The errors of both sides name the other side.
func TestForgedKeyNamesPeer(t *testing.T) {
	needDevice(t)
	cluster := newBreakable(t, 2)
	a, b := connect(t, cluster)
	memory, reg := registerMapped(t, b)
	g, err := reg.Grant(1000, 1000)
	if err != nil {
		t.Fatal(err)
	}
	key := g.Key()
	key.Addr -= 1000
	err = a.WriteRemote(t.Context(), key, 0, []byte{1})
	if want := fmt.Sprintf("by %q", cluster.Identities[1]); !errors.Is(err, transport.ErrRemoteAccess) || !strings.Contains(fmt.Sprint(err), want) {
		t.Fatalf("remote write with a forged address: %v, want %v with %q", err, transport.ErrRemoteAccess, want)
	}
	for i, c := range []*conn{b, a} {
		<-c.done
		if want := fmt.Sprintf("connection to %q: ", cluster.Identities[i]); !strings.Contains(c.Err().Error(), want) {
			t.Errorf("the conn to %s ends with %v, want %q", cluster.Identities[i], c.Err(), want)
		}
	}
	if i := slices.IndexFunc(memory, func(v byte) bool { return v != 0 }); i >= 0 {
		t.Errorf("a write with a forged address changes byte %d", i)
	}
}

// TestKeysOfManyGrants: the key of a grant that has ended is not valid again when the counter in the keys of its window wraps.
func TestKeysOfManyGrants(t *testing.T) {
	needDevice(t)
	a, b := connect(t, newBreakable(t, 2))
	memory, reg := registerMapped(t, b)
	const grants = 600
	seen := make(map[uint32]int)
	var first transport.RemoteKey
	for i := range grants {
		g, err := reg.Grant(0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		key := uint32(g.Key().Key)
		if n, ok := seen[key]; ok {
			t.Fatalf("grant %d has the key %#x of grant %d", i, key, n)
		}
		seen[key] = i
		if i == 0 {
			first = g.Key()
		}
		if i == 256 { // Without another window this is the key of the first grant.
			if err := stream(t.Context(), b, a, 1, func(int) {}); err != nil {
				t.Fatal(err)
			}
			if err := a.WriteRemote(t.Context(), g.Key(), 0, []byte{1}); err != nil || memory[0] != 1 {
				t.Fatalf("remote write with a valid key: %v", err)
			}
		}
		if i < grants-1 {
			g.Revoke()
		}
	}
	if err := a.WriteRemote(t.Context(), first, 0, []byte{2}); err == nil || memory[0] != 1 {
		t.Errorf("remote write with the first key: error %v, byte %d; want an error, and no change", err, memory[0])
	}
}
