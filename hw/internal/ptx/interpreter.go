// Package ptx generates the kernels of device/cuda, as PTX, the assembly language of virtual GPUs, and
// interprets the part of the language that they use, for tests.
package ptx

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
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

// Parse parses PTX. Anything that the kernels of this package do not use is an error.
func Parse(text string) (*Program, error) {
	p := &Program{entries: make(map[string]*entry)}
	var q *parser
	params := false
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "//")
		line = strings.TrimSpace(line)
		fail := func(err error) error { return fmt.Errorf("ptx: line %d: %w: %s", n+1, err, line) }
		switch name, isEntry := strings.CutPrefix(line, ".visible .entry "); {
		case line == "" || strings.HasPrefix(line, ".version") || strings.HasPrefix(line, ".target") || strings.HasPrefix(line, ".address_size"):
		case isEntry:
			q = &parser{entry: new(entry), regs: make(map[string]int), labels: make(map[string]int)}
			p.entries[strings.TrimSuffix(name, "(")] = q.entry
			params = true
		case params && line == ")":
			params = false
		case params:
			for f := range strings.SplitSeq(line, ",") {
				q.entry.params = append(q.entry.params, strings.TrimPrefix(strings.TrimSpace(f), ".param .u64 "))
			}
		case q == nil:
			return nil, fail(fmt.Errorf("outside a kernel"))
		case line == "{":
		case line == "}":
			if err := q.link(); err != nil {
				return nil, fail(err)
			}
			q = nil
		case strings.HasPrefix(line, ".reg "):
			if err := q.declare(line); err != nil {
				return nil, fail(err)
			}
		case strings.HasSuffix(line, ":"):
			q.labels[strings.TrimSuffix(line, ":")] = len(q.entry.code)
		default:
			if err := q.instruction(strings.TrimSuffix(line, ";")); err != nil {
				return nil, fail(err)
			}
		}
	}
	return p, nil
}

// A parser reads a kernel.
type parser struct {
	entry  *entry
	regs   map[string]int
	labels map[string]int
	jumps  []func() error
}

// declare adds registers: .reg .b32 %r<16>;
func (q *parser) declare(line string) error {
	f := strings.Fields(strings.TrimSuffix(line, ";"))
	prefix, count, ok := strings.Cut(f[len(f)-1], "<")
	n, err := strconv.Atoi(strings.TrimSuffix(count, ">"))
	if !ok || err != nil {
		return fmt.Errorf("not a declaration of registers")
	}
	for i := range n {
		q.regs[prefix+strconv.Itoa(i)] = q.entry.regs
		q.entry.regs++
	}
	return nil
}

func (q *parser) link() error {
	for _, j := range q.jumps {
		if err := j(); err != nil {
			return err
		}
	}
	return nil
}

// A value reads an operand.
type value func(t *thread) uint64

// reg returns the index of a register.
func (q *parser) reg(name string) (int, error) {
	if i, ok := q.regs[name]; ok {
		return i, nil
	}
	return 0, fmt.Errorf("no register %s", name)
}

// value returns an operand: a register, a number or a special register.
func (q *parser) value(text string) (value, error) {
	if i, ok := q.regs[text]; ok {
		return func(t *thread) uint64 { return t.regs[i] }, nil
	}
	special := map[string]value{
		"%ctaid.x":  func(t *thread) uint64 { return t.special[ctaidX] },
		"%ctaid.y":  func(t *thread) uint64 { return t.special[ctaidY] },
		"%ntid.x":   func(t *thread) uint64 { return t.special[ntidX] },
		"%tid.x":    func(t *thread) uint64 { return t.special[tidX] },
		"%nctaid.x": func(t *thread) uint64 { return t.special[nctaidX] & math.MaxUint32 },
		"%nctaid.y": func(t *thread) uint64 { return t.special[nctaidX] >> 32 },
	}
	if v := special[text]; v != nil {
		return v, nil
	}
	for _, prefix := range []string{"0f", "0d"} { // the bits of a float
		if hex, ok := strings.CutPrefix(text, prefix); ok {
			n, err := strconv.ParseUint(hex, 16, 64)
			return func(*thread) uint64 { return n }, err
		}
	}
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		return nil, fmt.Errorf("operand %q: not a register or number", text)
	}
	return func(*thread) uint64 { return n }, nil
}

// add adds an instruction without a jump.
func (q *parser) add(f func(t *thread)) {
	next := len(q.entry.code) + 1
	q.entry.code = append(q.entry.code, func(t *thread) int { f(t); return next })
}

func (q *parser) instruction(line string) error {
	guard := -1
	if rest, ok := strings.CutPrefix(line, "@"); ok {
		name, rest, _ := strings.Cut(rest, " ")
		i, err := q.reg(name)
		if err != nil {
			return err
		}
		guard, line = i, rest
	}
	op, rest, _ := strings.Cut(line, " ")
	args := operands(rest)
	switch {
	case op == "ret" && guard < 0:
		q.entry.code = append(q.entry.code, func(*thread) int { return math.MaxInt })
		return nil
	case op == "bra":
		return q.branch(guard, args)
	case guard >= 0:
		return fmt.Errorf("a predicate is only supported for bra")
	case strings.HasPrefix(op, "ld.param."):
		return q.param(args)
	case strings.HasPrefix(op, "ld.global.") || strings.HasPrefix(op, "st.global."):
		return q.access(op, args)
	case op == "mov.b64" && len(args) == 2 && strings.HasPrefix(args[0], "{"):
		return q.split(args)
	case op == "mov.b64" && len(args) == 2 && strings.HasPrefix(args[1], "{"):
		return q.join(args)
	}
	f, n := operation(op)
	if f == nil || len(args) != n+1 {
		return fmt.Errorf("unknown instruction %s with %d operands", op, len(args))
	}
	dst, err := q.reg(args[0])
	if err != nil {
		return err
	}
	var in [4]value
	for i := range n {
		if in[i], err = q.value(args[i+1]); err != nil {
			return err
		}
	}
	q.add(func(t *thread) {
		var v [4]uint64
		for i := range n {
			v[i] = in[i](t)
		}
		t.regs[dst] = f(v)
	})
	return nil
}

// operands splits at commas that are not in braces.
func operands(text string) (list []string) {
	depth, start := 0, 0
	for i, c := range text {
		switch {
		case c == '{':
			depth++
		case c == '}':
			depth--
		case c == ',' && depth == 0:
			list = append(list, strings.TrimSpace(text[start:i]))
			start = i + 1
		}
	}
	if rest := strings.TrimSpace(text[start:]); rest != "" {
		list = append(list, rest)
	}
	return list
}

func (q *parser) branch(guard int, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("bra with %d operands", len(args))
	}
	target, next := new(int), len(q.entry.code)+1
	q.jumps = append(q.jumps, func() error {
		at, ok := q.labels[args[0]]
		if !ok {
			return fmt.Errorf("no label %s", args[0])
		}
		*target = at
		return nil
	})
	q.entry.code = append(q.entry.code, func(t *thread) int {
		if guard < 0 || t.regs[guard] != 0 {
			return *target
		}
		return next
	})
	return nil
}

func (q *parser) param(args []string) error {
	dst, err := q.reg(args[0])
	if err != nil {
		return err
	}
	for i, name := range q.entry.params {
		if args[1] == "["+name+"]" {
			q.add(func(t *thread) { t.regs[dst] = t.args[i] })
			return nil
		}
	}
	return fmt.Errorf("no parameter %s", args[1])
}

// list returns the registers in braces, or one.
func (q *parser) list(text string) (regs []int, err error) {
	for name := range strings.SplitSeq(strings.Trim(text, "{}"), ",") {
		i, err := q.reg(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		regs = append(regs, i)
	}
	return regs, nil
}

// split is mov.b64 {low, high}, x.
func (q *parser) split(args []string) error {
	regs, err := q.list(args[0])
	if err != nil {
		return err
	}
	x, err := q.value(args[1])
	q.add(func(t *thread) {
		v := x(t)
		t.regs[regs[0]], t.regs[regs[1]] = v&math.MaxUint32, v>>32
	})
	return err
}

// join is mov.b64 x, {low, high}.
func (q *parser) join(args []string) error {
	regs, err := q.list(args[1])
	if err != nil {
		return err
	}
	dst, err := q.reg(args[0])
	q.add(func(t *thread) { t.regs[dst] = t.regs[regs[0]]&math.MaxUint32 | t.regs[regs[1]]<<32 })
	return err
}

// access is a load or store of one or several numbers.
func (q *parser) access(op string, args []string) error {
	f := strings.Split(op, ".")
	count, typ := 1, f[len(f)-1]
	if len(f) == 4 {
		n, err := strconv.Atoi(strings.TrimPrefix(f[2], "v"))
		if err != nil {
			return err
		}
		count = n
	}
	width, err := strconv.Atoi(typ[1:])
	if err != nil || len(args) != 2 {
		return fmt.Errorf("not an access")
	}
	load := f[0] == "ld"
	data, where := args[0], args[1]
	if !load {
		data, where = where, data
	}
	regs, err := q.list(data)
	if err != nil || len(regs) != count {
		return fmt.Errorf("%d registers for %d numbers: %w", len(regs), count, err)
	}
	addr, err := q.value(strings.Trim(where, "[]"))
	if err != nil {
		return err
	}
	size := width / 8
	q.add(func(t *thread) {
		at := addr(t)
		p := t.mem.at(at, size*count)
		if p == nil || at%uint64(size*count) != 0 {
			t.err, t.pc = fmt.Errorf("%s of address %#x: outside the memory, or not aligned to %d bytes", op, at, size*count), math.MaxInt
			return
		}
		for i, r := range regs {
			if load {
				t.regs[r] = number(p[i*size:], size, typ[0] == 's')
			} else {
				store(p[i*size:], size, t.regs[r])
			}
		}
	})
	// A fault ends the thread.
	at := len(q.entry.code) - 1
	inner := q.entry.code[at]
	q.entry.code[at] = func(t *thread) int {
		if next := inner(t); t.err == nil {
			return next
		}
		return math.MaxInt
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

// mask32 returns the part of a number that a register of 32 bits has.
func mask32(v uint64) uint64 { return v & math.MaxUint32 }

func f32(v uint64) float32 { return math.Float32frombits(uint32(v)) }
func f64(v uint64) float64 { return math.Float64frombits(v) }

// bits32 returns the bits of a result. A NaN is the one that GPUs return.
func bits32(f float32) uint64 {
	if f != f {
		return 0x7fffffff
	}
	return uint64(math.Float32bits(f))
}

// bits64 is bits32 for float64. GPUs do not define which NaN a result is; this one is negative, with a
// payload.
func bits64(f float64) uint64 {
	if f != f {
		return 0xfff8000000000123
	}
	return math.Float64bits(f)
}

func flag(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// operation returns the function of an instruction and the number of its inputs.
func operation(op string) (f func(v [4]uint64) uint64, inputs int) {
	if o, ok := operations[op]; ok {
		return o.f, o.n
	}
	return nil, 0
}

type function struct {
	n int
	f func(v [4]uint64) uint64
}

var operations = map[string]function{
	"cvta.to.global.u64": {1, func(v [4]uint64) uint64 { return v[0] }},
	"mov.u32":            {1, func(v [4]uint64) uint64 { return mask32(v[0]) }},
	"mov.u64":            {1, func(v [4]uint64) uint64 { return v[0] }},
	"mov.b32":            {1, func(v [4]uint64) uint64 { return mask32(v[0]) }},
	"mov.b64":            {1, func(v [4]uint64) uint64 { return v[0] }},

	"add.u32":      {2, func(v [4]uint64) uint64 { return mask32(v[0] + v[1]) }},
	"add.u64":      {2, func(v [4]uint64) uint64 { return v[0] + v[1] }},
	"mul.lo.u32":   {2, func(v [4]uint64) uint64 { return mask32(v[0] * v[1]) }},
	"mul.lo.u64":   {2, func(v [4]uint64) uint64 { return v[0] * v[1] }},
	"mul.wide.u32": {2, func(v [4]uint64) uint64 { return mask32(v[0]) * mask32(v[1]) }},
	"div.u64":      {2, func(v [4]uint64) uint64 { return v[0] / max(v[1], 1) }},
	"div.s64":      {2, func(v [4]uint64) uint64 { return uint64(int64(v[0]) / max(int64(v[1]), 1)) }},
	"min.u32":      {2, func(v [4]uint64) uint64 { return min(mask32(v[0]), mask32(v[1])) }},
	"max.u32":      {2, func(v [4]uint64) uint64 { return max(mask32(v[0]), mask32(v[1])) }},
	"min.s32":      {2, func(v [4]uint64) uint64 { return uint64(uint32(min(int32(v[0]), int32(v[1])))) }},
	"max.s32":      {2, func(v [4]uint64) uint64 { return uint64(uint32(max(int32(v[0]), int32(v[1])))) }},
	"min.u64":      {2, func(v [4]uint64) uint64 { return min(v[0], v[1]) }},
	"max.u64":      {2, func(v [4]uint64) uint64 { return max(v[0], v[1]) }},
	"min.s64":      {2, func(v [4]uint64) uint64 { return uint64(min(int64(v[0]), int64(v[1]))) }},
	"max.s64":      {2, func(v [4]uint64) uint64 { return uint64(max(int64(v[0]), int64(v[1]))) }},
	"and.b32":      {2, func(v [4]uint64) uint64 { return mask32(v[0] & v[1]) }},
	"or.b32":       {2, func(v [4]uint64) uint64 { return mask32(v[0] | v[1]) }},
	"xor.b32":      {2, func(v [4]uint64) uint64 { return mask32(v[0] ^ v[1]) }},
	"and.b64":      {2, func(v [4]uint64) uint64 { return v[0] & v[1] }},
	"or.b64":       {2, func(v [4]uint64) uint64 { return v[0] | v[1] }},
	"xor.b64":      {2, func(v [4]uint64) uint64 { return v[0] ^ v[1] }},
	"shl.b32":      {2, func(v [4]uint64) uint64 { return mask32(v[0] << v[1]) }},
	"shr.u32":      {2, func(v [4]uint64) uint64 { return mask32(v[0]) >> v[1] }},
	"bfe.u32":      {3, func(v [4]uint64) uint64 { return mask32(v[0]) >> v[1] & (1<<v[2] - 1) }},
	"bfe.s32": {3, func(v [4]uint64) uint64 {
		return uint64(uint32(int32(uint32(v[0])<<(32-v[1]-v[2])) >> (32 - v[2])))
	}},
	"bfi.b32": {4, func(v [4]uint64) uint64 {
		field := uint64(1)<<v[3] - 1
		return mask32(v[1]&^(field<<v[2]) | v[0]&field<<v[2])
	}},

	"setp.ge.u64":  {2, func(v [4]uint64) uint64 { return flag(v[0] >= v[1]) }},
	"setp.nan.f32": {2, func(v [4]uint64) uint64 { return flag(f32(v[0]) != f32(v[0]) || f32(v[1]) != f32(v[1])) }},
	"setp.nan.f64": {2, func(v [4]uint64) uint64 { return flag(f64(v[0]) != f64(v[0]) || f64(v[1]) != f64(v[1])) }},
	"selp.b32":     {3, choose}, "selp.f32": {3, choose}, "selp.f64": {3, choose},

	"add.rn.f32": {2, func(v [4]uint64) uint64 { return bits32(f32(v[0]) + f32(v[1])) }},
	"sub.rn.f32": {2, func(v [4]uint64) uint64 { return bits32(f32(v[0]) - f32(v[1])) }},
	"mul.rn.f32": {2, func(v [4]uint64) uint64 { return bits32(f32(v[0]) * f32(v[1])) }},
	"div.rn.f32": {2, func(v [4]uint64) uint64 { return bits32(f32(v[0]) / f32(v[1])) }},
	"add.rn.f64": {2, func(v [4]uint64) uint64 { return bits64(f64(v[0]) + f64(v[1])) }},
	"sub.rn.f64": {2, func(v [4]uint64) uint64 { return bits64(f64(v[0]) - f64(v[1])) }},
	"mul.rn.f64": {2, func(v [4]uint64) uint64 { return bits64(f64(v[0]) * f64(v[1])) }},
	"div.rn.f64": {2, func(v [4]uint64) uint64 { return bits64(f64(v[0]) / f64(v[1])) }},
	"min.f32":    {2, func(v [4]uint64) uint64 { return bits32(extreme(f32(v[0]), f32(v[1]), false)) }},
	"max.f32":    {2, func(v [4]uint64) uint64 { return bits32(extreme(f32(v[0]), f32(v[1]), true)) }},
	"min.f64":    {2, func(v [4]uint64) uint64 { return bits64(extreme(f64(v[0]), f64(v[1]), false)) }},
	"max.f64":    {2, func(v [4]uint64) uint64 { return bits64(extreme(f64(v[0]), f64(v[1]), true)) }},

	"cvt.u64.u32":    {1, func(v [4]uint64) uint64 { return mask32(v[0]) }},
	"cvt.s64.s32":    {1, func(v [4]uint64) uint64 { return uint64(int64(int32(v[0]))) }},
	"cvt.u32.u64":    {1, func(v [4]uint64) uint64 { return mask32(v[0]) }},
	"cvt.u32.u16":    {1, func(v [4]uint64) uint64 { return v[0] & math.MaxUint16 }},
	"cvt.u16.u32":    {1, func(v [4]uint64) uint64 { return v[0] & math.MaxUint16 }},
	"cvt.rn.f32.u64": {1, func(v [4]uint64) uint64 { return bits32(float32(v[0])) }},
	"cvt.rn.f64.u64": {1, func(v [4]uint64) uint64 { return bits64(float64(v[0])) }},
	"cvt.f32.f16":    {1, func(v [4]uint64) uint64 { return bits32(widen(uint16(v[0]))) }},
	"cvt.rn.f16.f32": {1, func(v [4]uint64) uint64 { return uint64(narrow(f32(v[0]))) }},
}

func choose(v [4]uint64) uint64 {
	if v[2] != 0 {
		return v[0]
	}
	return v[1]
}

// extreme is min or max of PTX: a NaN counts only if both are, and -0 is less than +0.
func extreme[T float32 | float64](a, b T, most bool) T {
	switch {
	case a != a:
		return b
	case b != b:
		return a
	case most:
		return max(a, b)
	}
	return min(a, b)
}

// widen returns the value of a binary16.
func widen(h uint16) float32 {
	exponent, mantissa := int(h>>10&0x1f), float64(h&0x3ff)
	var v float64
	switch exponent {
	case 0x1f:
		if mantissa != 0 {
			return float32(math.NaN())
		}
		v = math.Inf(1)
	case 0:
		v = math.Ldexp(mantissa, -24)
	default:
		v = math.Ldexp(1024+mantissa, exponent-25)
	}
	if h>>15 == 1 {
		v = -v
	}
	return float32(v)
}

// narrow rounds to binary16. It counts units of the last place, which are whole numbers in float64.
func narrow(f float32) uint16 {
	if f != f {
		return 0x7fff
	}
	sign := uint16(math.Float32bits(f) >> 16 & 0x8000)
	v := math.Abs(float64(f))
	if math.IsInf(v, 1) {
		return sign | 0x7c00
	}
	_, e := math.Frexp(v)
	e = max(e-1, -14)
	units := uint64(math.RoundToEven(math.Ldexp(v, 10-e)))
	if bits.Len64(units) > 11 { // a carry
		units, e = units/2, e+1
	}
	if e > 15 {
		return sign | 0x7c00
	}
	if units < 1024 {
		return sign | uint16(units)
	}
	return sign | uint16(e+15)<<10 | uint16(units-1024)
}
