package negotiate

import (
	"log/slog"

	"github.com/nexar-go/nexar/internal/cost"
	"github.com/nexar-go/nexar/internal/engine/shmexec"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/transport"
)

// Whether ranks share memory, at least each one areas with each other.
const (
	together uint8 = iota
	apart
)

// A memory is what all ranks share with this one, until release.
type memory struct {
	areas []transport.Areas      // this rank's and those of every other one; nil: this one
	some  transport.Areas        // one of them
	via   transport.MemorySharer // a conn that can sleep on them

	lacking bool // reserveCounters has failed
}

// memoryOf is nil if not all ranks share memory with this one, or are gone by now.
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

// hold holds the areas that are shared with a rank, if there are any.
func (m *memory) hold(rank int, s transport.MemorySharer) bool {
	if count, size := s.Areas(); count < Areas || shmexec.PieceBytes(size) == 0 {
		return false
	}
	areas, err := s.AcquireAreas()
	if err != nil {
		return false // The vote finds out more.
	}
	m.areas[rank], m.some, m.via = areas, areas, s
	return true
}

// release gives the memory back.
func (m *memory) release() {
	for _, areas := range m.areas {
		if areas != nil {
			areas.Release()
		}
	}
}

// own is an area of this rank.
func (m *memory) own(part int) []byte {
	own, _ := m.some.Area(part)
	return own
}

// reserveCounters has the system provide memory for the counters of a part, and reports
// whether it has. The first failure goes to log.
func (m *memory) reserveCounters(part int, log *slog.Logger) bool {
	err := m.some.Reserve(part, shmexec.CounterBytes)
	if err != nil && !m.lacking {
		m.lacking = true
		log.Warn("a communicator goes without shared memory", "reason", err)
	}
	return err == nil
}

func (m *memory) level() uint8 {
	if m == nil {
		return apart
	}
	return together
}

// config is that of the board in a part of the memory, which is held until that is left.
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
