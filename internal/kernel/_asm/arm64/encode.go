package main

import (
	"fmt"
	"strings"
)

// threeSame returns the encodings of instructions that the assembler of Go lacks, for three
// 128-bit registers: Arm Architecture Reference Manual, C4.1, "Advanced SIMD three same". The
// width of the elements is not included: bits 22 and 23 for integers, bit 22 for floating-point
// numbers.
func threeSame() map[string]uint32 {
	return map[string]uint32{
		"add": 0x4e208400, "mul": 0x4e209c00,
		"smax": 0x4e206400, "smin": 0x4e206c00, "umax": 0x6e206400, "umin": 0x6e206c00,
		"cmgt": 0x4e203400, "cmhi": 0x6e203400,
		"fadd": 0x4e20d400, "fmul": 0x6e20dc00, "fdiv": 0x6e20fc00,
		"fmax": 0x4e20f400, "fmin": 0x4ea0f400, "fcmeq": 0x4e20e400,
	}
}

// three emits d = n op m, for elements of width bits.
func (p *program) three(name string, width, d, n, m int) {
	code, ok := threeSame()[name]
	if !ok {
		panic("no instruction " + name)
	}
	size := map[int]uint32{8: 0, 16: 1, 32: 2, 64: 3}[width]
	if strings.HasPrefix(name, "f") {
		size -= 2
	}
	arrangement := map[int]string{8: "16b", 16: "8h", 32: "4s", 64: "2d"}[width]
	p.word(code|size<<22|uint32(m)<<16|uint32(n)<<5|uint32(d),
		"%s v%d.%s, v%d.%s, v%d.%s", name, d, arrangement, n, arrangement, m, arrangement)
}

// two emits conversions between 16-bit and 32-bit numbers. The 16-bit numbers are in the low
// half of their register, or in the high half for an instruction with a 2.
func (p *program) two(name string, d, n int) {
	code, ok := map[string]uint32{
		"fcvtl": 0x0e217800, "fcvtl2": 0x4e217800, // float16 to float32
		"fcvtn": 0x0e216800, "fcvtn2": 0x4e216800, // and back
		"shll": 0x2e613800, "shll2": 0x6e613800, // bfloat16 to float32
	}[name]
	if !ok {
		panic("no instruction " + name)
	}
	wide, narrow := fmt.Sprintf("v%d.4s", d), fmt.Sprintf("v%d.4h", n)
	if strings.HasPrefix(name, "fcvtn") {
		wide, narrow = fmt.Sprintf("v%d.4h", d), fmt.Sprintf("v%d.4s", n)
	}
	if strings.HasSuffix(name, "2") {
		wide, narrow = strings.ReplaceAll(wide, "4h", "8h"), strings.ReplaceAll(narrow, "4h", "8h")
	}
	if strings.HasPrefix(name, "shll") {
		narrow += ", #16"
	}
	p.word(code|uint32(n)<<5|uint32(d), "%s %s, %s", name, wide, narrow)
}

func (p *program) word(code uint32, format string, args ...any) {
	p.emit("WORD $%#08x // %s", code, fmt.Sprintf(format, args...))
}
