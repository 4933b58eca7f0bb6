package ptx

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

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
			return nil, fail(errors.New("outside a kernel"))
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
		return errors.New("not a declaration of registers")
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
		return errors.New("a predicate is only supported for bra")
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
		return errors.New("not an access")
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
