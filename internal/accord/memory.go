package accord

import (
	"github.com/nexar-go/nexar/internal/board"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/tune"
	"github.com/nexar-go/nexar/transport"
)

// How much memory ranks share: each can read all of the others', or areas, or
// nothing, at least for one of them.
const (
	open uint8 = iota
	areas
	apart
)

// A memory is what all ranks share with this one.
type memory struct {
	areas [][]byte           // of every rank
	keep  []any              // connections, which keep areas valid
	via   transport.Sharer   // one of them, that can sleep on areas
	open  []transport.Puller // connections by which all other memory can be read, or nil
}

// memoryOf is nil if not all ranks share memory with this one.
func memoryOf(links []*link.Link, own int) *memory {
	if len(links) > tune.SharedRanksMax {
		return nil
	}
	m := &memory{areas: make([][]byte, len(links)), open: make([]transport.Puller, len(links))}
	for rank, l := range links {
		if rank == own {
			continue
		}
		s, ok := l.Conn().(transport.Sharer)
		if !ok {
			return nil
		}
		mine, its := s.Areas()
		if board.PieceBytes(len(its)/board.ShelfSize) == 0 {
			return nil
		}
		m.areas[own], m.areas[rank], m.via = mine, its, s
		m.keep = append(m.keep, s)
		if p, ok := s.(transport.Puller); m.open != nil && ok && p.Pulls() {
			m.open[rank] = p
		} else {
			m.open = nil
		}
	}
	return m
}

func (m *memory) level() uint8 {
	switch {
	case m == nil:
		return apart
	case m.open == nil:
		return areas
	}
	return open
}

// config is that of the board in a part of the memory.
func (m *memory) config(cfg Config, part int, level uint8, processors int) board.Config {
	c := board.Config{
		Rank: cfg.Rank, Sleep: m.via.Sleep, Wake: m.via.Wake, SameProcess: cfg.SameProcess, Processors: processors, Keep: m.keep,
	}
	for _, area := range m.areas {
		c.Areas = append(c.Areas, board.Part(area, part))
	}
	if level == open {
		c.Pull = func(rank int, dst []byte, addr uint64) error { return m.open[rank].Pull(dst, addr) }
	}
	return c
}
