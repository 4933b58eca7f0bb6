package ptx_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/internal/ptx"
	"github.com/nexar-go/nexar/hw/internal/ptx/ptxtest"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/require"
)

const folder = "../../device/cuda/ptx"

// TestFilesAreGenerated: the files of device/cuda are the output of the generator.
func TestFilesAreGenerated(t *testing.T) {
	want := map[string]string{"copy": ptx.CopyModule()}
	for _, typ := range ptxtest.Types() {
		want[typ.String()] = ptx.Module(typ)
	}
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join(folder, name+".ptx"))
		if err != nil || string(got) != text {
			t.Errorf("%s.ptx differs from the output of the generator (%v): run go generate in device/cuda", name, err)
		}
	}
}

// TestAssembler: the assembler of CUDA accepts all kernels, for old and new GPUs.
func TestAssembler(t *testing.T) {
	ptxas, err := exec.LookPath("ptxas")
	require.Have(t, "ptxas", err == nil, "ptxas, the assembler of the CUDA toolkit, is not in PATH")
	files, err := filepath.Glob(filepath.Join(folder, "*.ptx"))
	if err != nil || len(files) != len(ptxtest.Types())+1 {
		t.Fatalf("%d files, want %d: %v", len(files), len(ptxtest.Types())+1, err)
	}
	help, err := exec.Command(ptxas, "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, arch := range []string{"sm_52", "sm_70", "sm_75", "sm_90", "sm_100"} {
		if !strings.Contains(string(help), "'"+arch+"'") {
			t.Logf("%s does not know %s", ptxas, arch)
			continue
		}
		for _, f := range files {
			out := filepath.Join(t.TempDir(), "out.cubin")
			if text, err := exec.Command(ptxas, "-arch="+arch, "-o", out, f).CombinedOutput(); err != nil {
				t.Errorf("%s for %s: %v\n%s", filepath.Base(f), arch, err, text)
			}
		}
	}
}

// A device for Run has two allocations.
func memory(dst, src []byte) ptx.Memory {
	return func(addr uint64) (uint64, []byte) {
		switch {
		case addr >= dstAddr && addr < dstAddr+uint64(len(dst)):
			return dstAddr, dst
		case addr >= srcAddr && addr < srcAddr+uint64(len(src)):
			return srcAddr, src
		}
		return 0, nil
	}
}

const dstAddr, srcAddr = 0x1000, 0x40000000

// program parses a file, not the output of the generator.
func program(t *testing.T, name string) *ptx.Program {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name+".ptx"))
	if err != nil {
		t.Fatal(err)
	}
	p, err := ptx.Parse(string(text))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestBits: all kernels have the bits of the host, for numbers of each kind and random ones. A NaN result
// of an instruction has a payload in the interpreter, as on a GPU, so kernels must replace it.
func TestBits(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 2))
	for _, typ := range ptxtest.Types() {
		p := program(t, typ.String())
		for _, op := range ptx.Ops(typ) {
			for _, vector := range []bool{false, true} {
				name, size := ptx.Entry(typ, op, vector), typ.Size()
				if vector {
					size = ptx.VectorBytes
				}
				a, b := ptxtest.Operands(typ, rng)
				want := make([]byte, len(a))
				kernel.Reducer(typ, kernel.Op(op))(want, a, b)
				args := []uint64{dstAddr, srcAddr, uint64(len(a) / size), 1, 0, 0}
				if err := p.Run(name, args, ptx.Grid{X: 2, Y: 1, Block: 32}, memory(a, b)); err != nil {
					t.Fatal(err)
				}
				ptxtest.Compare(t, name, typ, a, want)
			}
		}
	}
}

// TestDivide: quotients have the bits of the host's.
func TestDivide(t *testing.T) {
	rng := rand.New(rand.NewPCG(4, 3))
	for _, typ := range ptxtest.Types() {
		if typ.Complex() {
			continue // divided as parts
		}
		p := program(t, typ.String())
		for _, by := range []int{1, 2, 3, 7, 8, 100, 1000, ptx.HalfDivisorMax - 1, ptx.HalfDivisorMax} {
			a, _ := ptxtest.Operands(typ, rng)
			want := bytes.Clone(a)
			kernel.Divider(typ)(want, by)
			args := []uint64{dstAddr, uint64(by), uint64(len(a) / typ.Size()), 1, 0, 0}
			if err := p.Run(ptx.DivideEntry(typ), args, ptx.Grid{X: 1, Y: 1, Block: 32}, memory(a, nil)); err != nil {
				t.Fatal(err)
			}
			if by == 1 && !typ.Float() && !bytes.Equal(a, want) {
				t.Errorf("%v: divided by 1", typ)
			}
			ptxtest.Compare(t, fmt.Sprintf("%s by %d", ptx.DivideEntry(typ), by), typ, a, want)
		}
	}
}

// TestRows: grids of all shapes reduce each element of each row once, and nothing between rows.
func TestRows(t *testing.T) {
	p := program(t, "int32")
	for _, n := range []int{0, 1, 5, 33} {
		for _, rows := range []int{0, 1, 3, 9} {
			for _, g := range []ptx.Grid{{1, 1, 1}, {1, 1, 32}, {3, 2, 4}, {7, 20, 8}} {
				const dstStride, srcStride = 40 * 4, 36 * 4
				dst, src := make([]byte, 10*dstStride), make([]byte, 10*srcStride)
				for i := 0; i < len(src); i += 4 {
					binary.NativeEndian.PutUint32(src[i:], uint32(i+1))
				}
				want := bytes.Clone(dst)
				for r := range rows {
					copy(want[r*dstStride:][:4*n], src[r*srcStride:])
				}
				args := []uint64{dstAddr, srcAddr, uint64(n), uint64(rows), dstStride, srcStride}
				if err := p.Run("sum_int32", args, g, memory(dst, src)); err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(dst, want) {
					t.Errorf("%d rows of %d elements with grid %v: wrong", rows, n, g)
				}
			}
		}
	}
}

// TestCopies: copies of rows of elements of all sizes.
func TestCopies(t *testing.T) {
	p := program(t, "copy")
	for _, size := range []int{1, 2, 4, 8, 16} {
		dst, src := make([]byte, 400), make([]byte, 400)
		for i := range src {
			src[i] = byte(i*7 + 1)
		}
		want := bytes.Clone(dst)
		for r := range 3 {
			copy(want[r*128:][:2*size], src[r*64:])
		}
		args := []uint64{dstAddr, srcAddr, 2, 3, 128, 64}
		if err := p.Run(ptx.CopyEntry(size), args, ptx.Grid{X: 1, Y: 2, Block: 2}, memory(dst, src)); err != nil || !bytes.Equal(dst, want) {
			t.Errorf("rows of elements of %d bytes: wrong, %v", size, err)
		}
	}
}

// TestInterpreterFaults: the interpreter refuses invalid accesses and unknown instructions.
func TestInterpreterFaults(t *testing.T) {
	p := program(t, "float32")
	mem := memory(make([]byte, 64), make([]byte, 64))
	for what, args := range map[string][]uint64{
		"behind the end": {dstAddr, srcAddr, 17, 1, 0, 0}, "not aligned": {dstAddr + 2, srcAddr, 1, 1, 0, 0},
	} {
		if err := p.Run("sum_float32", args, ptx.Grid{X: 1, Y: 1, Block: 1}, mem); err == nil || !strings.Contains(err.Error(), "outside the memory, or not aligned") {
			t.Errorf("%s: %v", what, err)
		}
	}
	text := ptx.Module(device.Float32)
	for what, bad := range map[string]string{
		"flushes": strings.Replace(text, "add.rn.f32", "add.rn.ftz.f32", 1),
		"fused":   strings.Replace(text, "add.rn.f32", "fma.rn.f32", 1),
		"label":   strings.Replace(text, "bra DONE", "bra GONE", 1),
	} {
		if _, err := ptx.Parse(bad); err == nil {
			t.Errorf("%s: parsed", what)
		}
	}
}
