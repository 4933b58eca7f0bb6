package negotiate

import (
	"encoding/binary"
	"log/slog"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/internal/host"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/transport"
)

// Levels of sharing areas with all other ranks; the maximum counts.
const (
	shared uint8 = iota
	notShared
)

// A memory holds the areas that this rank shares with all others, until release.
type memory struct {
	areas []transport.Areas      // by rank; nil for this one
	some  transport.Areas        // any of areas
	via   transport.MemorySharer // provides FutexWait and FutexWake

	isShort bool // reserveCounters has failed
}

// memoryOf returns nil unless this rank shares memory with all others.
func memoryOf(links []*link.Link, own int) *memory {
	if len(links) > cost.SharedRanksMax {
		return nil
	}
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
	if count, size := s.Areas(); count < Areas || shmexec.PieceBytes(size) == 0 {
		return false
	}
	areas, err := s.AcquireAreas()
	if err != nil {
		return false // The peer has gone, so the negotiation fails.
	}
	m.areas[rank], m.some, m.via = areas, areas, s
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

func (m *memory) level() uint8 {
	if m == nil {
		return notShared
	}
	return shared
}

// config returns the configuration of the shared memory in a part. The [shmexec.Memory] releases the areas.
func (m *memory) config(cfg Config, part, processors int) shmexec.Config {
	c := shmexec.Config{
		Rank: cfg.Rank, Sleep: m.via.FutexWait, Wake: m.via.FutexWake, SameProcess: cfg.SameProcess, Processors: processors,
		Reserve: func() error { return m.some.Reserve(part, len(m.own(part))) },
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

// domainBytes is the length of the number of a domain.
const domainBytes = 2

// domainBallot returns the contribution of a rank to the list of the domains of all ranks. It is
// empty for more ranks than can share memory.
func domainBallot(rank, size int) []uint8 {
	if size > cost.SharedRanksMax {
		return nil
	}
	b := make([]uint8, domainBytes*size)
	binary.BigEndian.PutUint16(b[domainBytes*rank:], host.Domain())
	return b
}

// groups returns the groups of the ranks, given the maximum of all ballots.
func groups(domains []uint8) plan.Hosts {
	of := make([]int, len(domains)/domainBytes)
	for rank := range of {
		of[rank] = int(binary.BigEndian.Uint16(domains[domainBytes*rank:]))
	}
	return plan.GroupsWithin(of)
}
