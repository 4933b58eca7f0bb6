// Package ptx generates the kernels of device/cuda, as PTX, the assembly language of virtual GPUs, and
// interprets the part of the language that they use, for tests.
package ptx

import (
	"encoding/binary"
	"fmt"
)

// A Program is parsed PTX.
type Program struct{ entries map[string]*entry }

// An entry is a kernel.
type entry struct {
	params []string
	code   []instruction
	regs   int
}

// An instruction returns the index of the next one.
type instruction func(t *thread) int

// A thread is a running thread of a kernel.
type thread struct {
	regs    []uint64
	args    []uint64
	special [5]uint64
	mem     *memory
	pc      int
	err     error
}

// A Grid is the number of blocks, in two dimensions, and of threads of a block.
type Grid struct{ X, Y, Block int }

// Memory returns the allocation that has an address, or nil.
type Memory func(addr uint64) (base uint64, data []byte)

// memory remembers the allocations of a kernel.
type memory struct {
	find   Memory
	ranges []span
}

type span struct {
	base uint64
	data []byte
}

func (m *memory) at(addr uint64, n int) []byte {
	for _, s := range m.ranges {
		if off := addr - s.base; addr >= s.base && off < uint64(len(s.data)) && uint64(len(s.data))-off >= uint64(n) {
			return s.data[off : off+uint64(n)]
		}
	}
	base, data := m.find(addr)
	if data == nil {
		return nil
	}
	m.ranges = append(m.ranges, span{base, data})
	if off := addr - base; uint64(len(data))-off >= uint64(n) {
		return data[off : off+uint64(n)]
	}
	return nil
}

// Registers for special values, after those of Program.
const (
	ctaidX = iota
	ctaidY
	ntidX
	tidX
	nctaidX // and nctaidY
)

// Run runs all threads of a kernel, one after the other. An access outside the memory is an error, as is
// one that is not aligned to its size.
func (p *Program) Run(name string, args []uint64, g Grid, find Memory) error {
	e := p.entries[name]
	if e == nil {
		return fmt.Errorf("ptx: no kernel %s", name)
	}
	if len(args) < len(e.params) {
		return fmt.Errorf("ptx: kernel %s has %d parameters, got %d", name, len(e.params), len(args))
	}
	t := &thread{regs: make([]uint64, e.regs), args: args, mem: &memory{find: find}}
	for y := range g.Y {
		for x := range g.X {
			for i := range g.Block {
				t.special = [5]uint64{uint64(x), uint64(y), uint64(g.Block), uint64(i), uint64(g.X) | uint64(g.Y)<<32}
				for t.pc = 0; t.pc < len(e.code); {
					t.pc = e.code[t.pc](t)
				}
				if t.err != nil {
					return fmt.Errorf("ptx: kernel %s: %w", name, t.err)
				}
			}
		}
	}
	return nil
}

// number reads an integer. Signed ones shorter than a register of 32 bits have the sign in all of it.
func number(p []byte, size int, signed bool) uint64 {
	switch {
	case size == 1 && signed:
		return uint64(uint32(int32(int8(p[0]))))
	case size == 1:
		return uint64(p[0])
	case size == 2 && signed:
		return uint64(uint32(int32(int16(binary.NativeEndian.Uint16(p)))))
	case size == 2:
		return uint64(binary.NativeEndian.Uint16(p))
	case size == 4:
		return uint64(binary.NativeEndian.Uint32(p))
	}
	return binary.NativeEndian.Uint64(p)
}

func store(p []byte, size int, v uint64) {
	switch size {
	case 1:
		p[0] = byte(v)
	case 2:
		binary.NativeEndian.PutUint16(p, uint16(v))
	case 4:
		binary.NativeEndian.PutUint32(p, uint32(v))
	default:
		binary.NativeEndian.PutUint64(p, v)
	}
}
