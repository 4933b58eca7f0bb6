package accord

import (
	"runtime"

	"github.com/nexar-go/nexar/internal/board"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/tune"
	"github.com/nexar-go/nexar/transport"
)

// Whether ranks share memory, at least each one areas with each other.
const (
	together uint8 = iota
	apart
)

// A memory is what all ranks share with this one.
type memory struct {
	peers []transport.Sharer // the conn to every rank, which keeps its areas valid; nil: this one
	via   transport.Sharer   // one of them, that can sleep on areas
}

// memoryOf is nil if not all ranks share memory with this one.
func memoryOf(links []*link.Link, own int) *memory {
	if len(links) > tune.SharedRanksMax {
		return nil
	}
	m := &memory{peers: make([]transport.Sharer, len(links))}
	for rank, l := range links {
		if rank == own {
			continue
		}
		s, ok := l.Conn().(transport.Sharer)
		if !ok {
			return nil
		}
		if count, size := s.Areas(); count < Areas || board.PieceBytes(size) == 0 {
			return nil
		}
		m.peers[rank], m.via = s, s
	}
	return m
}

// clear clears an area of this rank.
func (m *memory) clear(part int) {
	own, _ := m.via.Area(part)
	board.Clear(own)
	runtime.KeepAlive(m) // and with it the area, should the node be closed meanwhile
}

func (m *memory) level() uint8 {
	if m == nil {
		return apart
	}
	return together
}

// config is that of the board in a part of the memory.
func (m *memory) config(cfg Config, part, processors int) board.Config {
	c := board.Config{
		Rank: cfg.Rank, Sleep: m.via.Sleep, Wake: m.via.Wake, SameProcess: cfg.SameProcess, Processors: processors,
		Stream: kernel.Streamer(), Areas: make([][]byte, len(m.peers)),
	}
	for rank, s := range m.peers {
		if s != nil {
			c.Areas[cfg.Rank], c.Areas[rank] = s.Area(part)
			c.Keep = append(c.Keep, s)
		}
	}
	return c
}
