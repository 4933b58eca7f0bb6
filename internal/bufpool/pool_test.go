package bufpool

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// small is a configuration for tests with little memory.
var small = Config{Tiers: []Tier{{Size: 100, Keep: 2}, {Size: 1000, Keep: 1}, {Size: 5000, Keep: 0}}}

func newPool(t testing.TB, cfg Config) *Pool {
	t.Helper()
	p, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestGetTakesTheSmallestTier(t *testing.T) {
	p := newPool(t, small)
	for _, c := range []struct{ n, capacity, tier int }{
		{0, 100, 0}, {1, 100, 0}, {100, 100, 0}, {101, 1000, 1}, {1000, 1000, 1}, {1001, 5000, 2}, {5000, 5000, 2},
	} {
		before := p.Stats().Tiers[c.tier].Gets
		b := p.Get(c.n)
		if len(b.B) != c.n || cap(b.B) != c.capacity {
			t.Errorf("Get(%d): length %d, capacity %d, want %d", c.n, len(b.B), cap(b.B), c.capacity)
		}
		if got := p.Stats().Tiers[c.tier].Gets; got != before+1 {
			t.Errorf("Get(%d): tier %d lent %d, want %d", c.n, c.tier, got, before+1)
		}
	}
	b := p.Get(5001)
	if len(b.B) != 5001 || cap(b.B) != 5001 {
		t.Errorf("oversize: length %d, capacity %d, want 5001", len(b.B), cap(b.B))
	}
	p.Put(b)
	if got, want := p.Stats().Oversize, (TierStats{Gets: 1, Misses: 1, Puts: 1, Drops: 1}); got != want {
		t.Errorf("oversize: got %+v, want %+v", got, want)
	}
}

func TestPutKeepsAndDrops(t *testing.T) {
	p := newPool(t, small)
	a, b, c := p.Get(10), p.Get(20), p.Get(30)
	p.Put(a)
	p.Put(b)
	p.Put(c) // one more than the tier keeps
	want := TierStats{Size: 100, Keep: 2, Gets: 3, Misses: 3, Puts: 3, Drops: 1, Idle: 2, BytesIdle: 200}
	if got := p.Stats().Tiers[0]; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if got := p.Get(70); got != b {
		t.Error("the buffer used last was not lent first")
	} else if len(got.B) != 70 || cap(got.B) != 100 {
		t.Errorf("length %d, capacity %d, want 70 and 100", len(got.B), cap(got.B))
	}
	want = TierStats{Size: 100, Keep: 2, Gets: 4, Hits: 1, Misses: 3, Puts: 3, Drops: 1, InUse: 1, Idle: 1, BytesIdle: 100}
	if got := p.Stats().Tiers[0]; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestPutRestoresWhatWasResliced(t *testing.T) {
	p := newPool(t, small)
	b := p.Get(100)
	first := &b.B[0]
	b.B = b.B[60:80:90]
	p.Put(b)
	if b.B != nil {
		t.Error("Put left the memory to its user")
	}
	b = p.Get(100)
	if len(b.B) != 100 || &b.B[0] != first {
		t.Error("a resliced buffer did not come back whole")
	}
}

func TestPutGrown(t *testing.T) {
	for _, c := range []struct{ capacity, idle, bytes int }{
		{101, 1, 0}, {400, 1, 0}, {401, 0, 0}, {4000, 0, 0},
	} {
		p := newPool(t, small)
		b := p.Get(100)
		b.B = alignedBytes(c.capacity)
		p.Put(b)
		s := p.Stats().Tiers[0]
		if s.Idle != c.idle || s.BytesIdle != int64(c.idle*c.capacity) || s.Drops != uint64(1-c.idle) {
			t.Errorf("grown to %d: %+v", c.capacity, s)
		}
		if got := cap(p.Get(1).B); c.idle == 1 && got != c.capacity {
			t.Errorf("grown to %d: capacity %d", c.capacity, got)
		}
	}
	p := newPool(t, small)
	b := p.Get(100)
	b.B = alignedBytes(301)[1:] // grown to an address that is no good
	p.Put(b)
	if b = p.Get(1); cap(b.B) != 100 || !isAligned(b.B) {
		t.Errorf("capacity %d, aligned %v; want the old memory", cap(b.B), isAligned(b.B))
	}
}

func TestTrim(t *testing.T) {
	p := newPool(t, small)
	a, b, c := p.Get(100), p.Get(100), p.Get(1000)
	p.Put(a)
	p.Put(c)
	if got := p.Trim(); got != 1100 {
		t.Errorf("Trim freed %d bytes, want 1100", got)
	}
	if got := p.Trim(); got != 0 {
		t.Errorf("a second Trim freed %d bytes, want 0", got)
	}
	want := TierStats{Size: 100, Keep: 2, Gets: 2, Misses: 2, Puts: 1, Trims: 1, InUse: 1}
	if got := p.Stats().Tiers[0]; got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	p.Put(b) // lent before, and so not trimmed
	if got := p.Stats().Tiers[0]; got.Idle != 1 || got.BytesIdle != 100 {
		t.Errorf("after Put: %+v", got)
	}
}

func TestAlignment(t *testing.T) {
	p := newPool(t, Config{})
	for _, n := range []int{1, 64 << 10, 64<<10 + 1} {
		if b := p.Get(n); !isAligned(b.B) {
			t.Errorf("Get(%d) is not aligned", n)
		}
	}
	for n := range 2000 {
		b := alignedBytes(n)
		if len(b) != n || cap(b) != n || n > 0 && !isAligned(b) {
			t.Fatalf("%d bytes: length %d, capacity %d, aligned %v", n, len(b), cap(b), isAligned(b))
		}
	}
}

func TestProfiles(t *testing.T) {
	sizes := []int{64 << 10, 8 << 20, 64 << 20, 256 << 20}
	for _, c := range []struct {
		name string
		cfg  Config
		keep []int
	}{
		{"zero value", Config{}, []int{256, 32, 16, 4}},
		{"training", Training(), []int{256, 32, 16, 4}},
		{"inference", Inference(), []int{256, 16, 4, 0}},
	} {
		s := newPool(t, c.cfg).Stats()
		for i, tier := range s.Tiers {
			if want := (TierStats{Size: sizes[i], Keep: c.keep[i]}); tier != want {
				t.Errorf("%s: tier %d is %+v, want %+v", c.name, i, tier, want)
			}
		}
		if len(s.Tiers) != len(sizes) {
			t.Errorf("%s: %d tiers, want %d", c.name, len(s.Tiers), len(sizes))
		}
	}
}

func TestNewRejects(t *testing.T) {
	for _, c := range []struct {
		tiers []Tier
		want  error
	}{
		{[]Tier{{0, 1}}, errRange}, {[]Tier{{-1, 1}}, errRange}, {[]Tier{{1, -1}}, errRange},
		{[]Tier{{2, 1}, {2, 1}}, errOrder}, {[]Tier{{2, 1}, {1, 1}}, errOrder},
	} {
		if _, err := New(Config{Tiers: c.tiers}); !errors.Is(err, c.want) {
			t.Errorf("%v: got %v, want %v", c.tiers, err, c.want)
		}
	}
}

func TestPanics(t *testing.T) {
	p, q := newPool(t, small), newPool(t, small)
	kept, dropped, huge, trimmed := p.Get(1), p.Get(5000), p.Get(6000), p.Get(1)
	for _, b := range []*Buffer{trimmed, kept, dropped, huge} {
		p.Put(b)
		if b == trimmed {
			p.Trim()
		}
	}
	for name, f := range map[string]func(){
		"put twice, kept":     func() { p.Put(kept) },
		"put twice, dropped":  func() { p.Put(dropped) },
		"put twice, oversize": func() { p.Put(huge) },
		"put twice, trimmed":  func() { p.Put(trimmed) },
		"another pool":        func() { p.Put(q.Get(1)) },
		"another's oversize":  func() { p.Put(q.Get(6000)) },
		"negative length":     func() { p.Get(-1) },
	} {
		if !panics(f) {
			t.Errorf("%s: did not panic", name)
		}
	}
	p.Put(p.Get(1)) // a panic holds no lock
}

func panics(f func()) (did bool) {
	defer func() { did = recover() != nil }()
	f()
	return false
}

// After any sequence of calls the statistics are consistent, and no memory is in two buffers in
// use.
func TestAccounting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := New(small)
		if err != nil {
			t.Fatal(err)
		}
		var lent []*Buffer
		mark := byte(0)
		t.Repeat(map[string]func(*rapid.T){
			"get": func(t *rapid.T) {
				b := p.Get(rapid.IntRange(1, 6000).Draw(t, "n"))
				mark++
				b.B = append(b.B[:0], mark)
				lent = append(lent, b)
			},
			"grow": func(t *rapid.T) {
				if len(lent) == 0 {
					t.Skip("nothing is lent")
				}
				b := lent[rapid.IntRange(0, len(lent)-1).Draw(t, "which")]
				b.B = append(b.B, make([]byte, rapid.IntRange(0, 3000).Draw(t, "by"))...)
			},
			"put": func(t *rapid.T) {
				if len(lent) == 0 {
					t.Skip("nothing is lent")
				}
				i := rapid.IntRange(0, len(lent)-1).Draw(t, "which")
				p.Put(lent[i])
				lent = append(lent[:i], lent[i+1:]...)
			},
			"trim": func(t *rapid.T) {
				before, freed := p.Stats(), p.Trim()
				for _, s := range before.Tiers {
					freed -= s.BytesIdle
				}
				if freed != 0 {
					t.Fatalf("Trim freed %d bytes more than were idle", freed)
				}
			},
			"": func(t *rapid.T) { checkAccounts(t, p, lent) },
		})
	})
}

func checkAccounts(t rapid.TB, p *Pool, lent []*Buffer) {
	t.Helper()
	s := p.Stats()
	inUse := 0
	for _, c := range append(s.Tiers, s.Oversize) {
		if c.Gets != c.Hits+c.Misses || c.Misses != uint64(c.InUse)+uint64(c.Idle)+c.Drops+c.Trims {
			t.Fatalf("does not add up: %+v", c)
		}
		if c.Idle > c.Keep || c.BytesIdle < int64(c.Idle*c.Size) || c.BytesIdle > int64(growthMax*c.Idle*c.Size) {
			t.Fatalf("keeps too much or too little: %+v", c)
		}
		inUse += c.InUse
	}
	if inUse != len(lent) {
		t.Fatalf("%d in use, want %d", inUse, len(lent))
	}
	seen := map[*byte]bool{}
	for _, b := range lent {
		if first := &b.mem[0]; seen[first] {
			t.Fatal("one memory is lent twice")
		} else {
			seen[first] = true
		}
	}
}

func TestConcurrentUse(t *testing.T) {
	p := newPool(t, small)
	const users, rounds = 8, 2000
	var wg sync.WaitGroup
	for u := range users {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(u), 1))
			for i := range rounds {
				b := p.Get(1 + r.IntN(1200))
				for k := range b.B {
					b.B[k] = byte(u)
				}
				for k := range b.B {
					if b.B[k] != byte(u) {
						t.Errorf("user %d found the byte of user %d", u, b.B[k])
						return
					}
				}
				p.Put(b)
				if i%512 == 0 {
					p.Trim()
					p.Stats()
				}
			}
		})
	}
	wg.Wait()
	checkAccounts(t, p, nil)
	s := p.Stats()
	if got := s.Tiers[0].Gets + s.Tiers[1].Gets + s.Tiers[2].Gets; got != users*rounds {
		t.Errorf("%d buffers were lent, want %d", got, users*rounds)
	}
}

func TestSteadyStateDoesNotAllocate(t *testing.T) {
	p := newPool(t, Training())
	var held [8]*Buffer
	cycle := func() {
		for i := range held {
			held[i] = p.Get(64 << 10)
		}
		for _, b := range held {
			p.Put(b)
		}
	}
	cycle()
	if n := testing.AllocsPerRun(100, cycle); n != 0 {
		t.Errorf("Get and Put allocate %v times", n)
	}
}

func BenchmarkGetPut(b *testing.B) {
	for _, n := range []int{64 << 10, 8 << 20} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := newPool(b, Config{})
			b.ReportAllocs()
			for b.Loop() {
				p.Put(p.Get(n))
			}
		})
	}
}

func BenchmarkGetPutParallel(b *testing.B) {
	p := newPool(b, Config{})
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			p.Put(p.Get(64 << 10))
		}
	})
}
