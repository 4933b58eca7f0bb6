package negotiate

import (
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/transport"
)

// Levels of sharing areas with all other ranks; the maximum counts.
const (
	attachable uint8 = iota // this rank attaches areas without links
	linkable                // this rank is, or can be, linked to all ranks, which may share areas over the links
	notShared
)

// Up to attachAllMax ranks attach all areas at once. With more ranks, a rank attaches an area when a plan
// first needs it.
const attachAllMax = 16

// level returns the level of this rank.
func (cfg *Config) level() uint8 {
	size := cfg.Comm.Size()
	switch {
	case size > cost.SharedRanksMax:
		return notShared
	case cfg.key() != 0:
		return attachable
	case cfg.LinkAll != nil:
		return linkable
	}
	m := memoryOf(cfg.Comm.Links(), cfg.Rank)
	if m == nil {
		return notShared
	}
	m.release()
	return linkable
}

// key returns the key of the areas of this rank, or 0 if other ranks cannot attach them.
func (cfg *Config) key() uint64 {
	if cfg.Host == nil || !isUsable(cfg.Host.Areas()) {
		return 0
	}
	return cfg.Host.AreasKey()
}

// isUsable reports whether communicators can use areas.
func isUsable(count, size int) bool { return count >= Areas && shmexec.PieceBytes(size) > 0 }

// A memory holds the areas that this rank shares with others, until release.
type memory struct {
	areas  []transport.Areas // by rank; nil for this one, and without an area
	some   transport.Areas   // any of areas
	futex  futex
	attach func(rank int) (transport.Areas, error) // nil if all areas are there

	isShort bool // reserveCounters has failed
}

// A futex is the common part of [transport.MemorySharer] and [transport.HostMemory].
type futex interface {
	FutexWait(word *atomic.Uint32, old uint32, d time.Duration)
	FutexWake(word *atomic.Uint32)
}

// attachMemory attaches the areas of the neighbors of this rank, or of all ranks if they are few, without links.
// It returns nil, and logs the reason, if it cannot.
func (cfg *Config) attachMemory(profiles []profile) *memory {
	m := &memory{areas: make([]transport.Areas, len(profiles)), futex: cfg.Host}
	m.attach = func(rank int) (transport.Areas, error) {
		return cfg.Host.AttachAreas(cfg.Names[rank], profiles[rank].Key)
	}
	needed := shmexec.Neighbors(cfg.Rank, len(profiles))
	if len(profiles) <= attachAllMax {
		needed = nil
		for rank := range profiles {
			if rank != cfg.Rank {
				needed = append(needed, rank)
			}
		}
	}
	for _, rank := range needed {
		if _, err := m.area(rank, 0); err != nil {
			cfg.Log.Info("the shared memory of a rank cannot be attached, so that all ranks of the communicator link themselves to each other",
				"rank", rank, "node", cfg.Names[rank], "reason", err)
			m.release()
			return nil
		}
	}
	return m
}

// area attaches the areas of a rank, unless they are, and returns the area of a part.
func (m *memory) area(rank, part int) ([]byte, error) {
	if m.areas[rank] == nil {
		areas, err := m.attach(rank)
		if err != nil {
			return nil, err
		}
		m.areas[rank], m.some = areas, areas
	}
	_, area := m.areas[rank].Area(part)
	return area, nil
}

// memoryOf returns the areas that this rank shares with all others over links, or nil.
func memoryOf(links []*link.Link, own int) *memory {
	m := &memory{areas: make([]transport.Areas, len(links))}
	for rank, l := range links {
		if rank == own {
			continue
		}
		if s := l.MemorySharer(); s == nil || !m.hold(rank, s) {
			m.release()
			return nil
		}
	}
	return m
}

// hold acquires the areas that are shared with a rank, and reports whether it has.
func (m *memory) hold(rank int, s transport.MemorySharer) bool {
	if !isUsable(s.Areas()) {
		return false
	}
	areas, err := s.AcquireAreas()
	if err != nil {
		return false // The peer has gone, so the negotiation fails.
	}
	m.areas[rank], m.some, m.futex = areas, areas, s
	return true
}

// release releases all areas.
func (m *memory) release() {
	for _, areas := range m.areas {
		if areas != nil {
			areas.Release()
		}
	}
}

// own returns an area of this rank.
func (m *memory) own(part int) []byte {
	own, _ := m.some.Area(part)
	return own
}

// reserveCounters allocates memory for the counters of a part, and reports whether that
// succeeded. It logs the first failure.
func (m *memory) reserveCounters(part int, log *slog.Logger) bool {
	err := m.some.Reserve(part, shmexec.CounterBytes)
	if err != nil && !m.isShort {
		m.isShort = true
		log.Warn(WithoutMemory+": the host is short of it", "err", err)
	}
	return err == nil
}

// config returns the configuration of the shared memory in a part. The [shmexec.Memory] releases the areas.
func (m *memory) config(cfg Config, part, processors int) shmexec.Config {
	c := shmexec.Config{
		Rank: cfg.Rank, Sleep: m.futex.FutexWait, Wake: m.futex.FutexWake, SameProcess: cfg.SameProcess, Processors: processors,
		Reserve: func() error { return m.some.Reserve(part, len(m.own(part))) },
		Attach:  func(rank int) ([]byte, error) { return m.area(rank, part) },
		Stream:  kernel.Streamer(), Areas: make([][]byte, len(m.areas)), Release: m.release,
	}
	c.Areas[cfg.Rank] = m.own(part)
	for rank, areas := range m.areas {
		if areas != nil {
			_, c.Areas[rank] = areas.Area(part)
		}
	}
	return c
}

// groups returns the groups of the ranks.
func groups(profiles []profile) plan.Hosts {
	domains := make([]int, len(profiles))
	for rank, s := range profiles {
		domains[rank] = int(s.Domain)
	}
	return plan.GroupsWithin(domains)
}
