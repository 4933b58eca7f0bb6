// Command amd64 writes the kernels for amd64, in two sets: for processors with AVX2 and F16C,
// and for those with AVX-512 (F, BW, DQ and VL).
//
// It is run by "go generate", which passes the output directory. An error ends it before a file
// is written.
package main

import (
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"

	"github.com/mmcloughlin/avo/build"
	"github.com/mmcloughlin/avo/pass"
	"github.com/mmcloughlin/avo/printer"

	"github.com/nexar-go/nexar/internal/kernel/_asm/stubs"
)

// command is named in the header of generated files.
const command = "go generate"

// A family is the set of kernels in one file.
type family struct {
	file  string
	write func(g *generator)
}

func families() []family {
	return []family{
		{"floats_amd64.s", writeFloats},
		{"halves_amd64.s", writeHalves},
		{"ints_amd64.s", writeInts},
		{"words_amd64.s", writeWords},
		{"divide_amd64.s", writeDivisions},
		{"convert_amd64.s", writeConversions},
		{"stream_amd64.s", writeStream},
	}
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: amd64 directory")
	}
	files, err := generate()
	if err != nil {
		log.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(os.Args[1], name), text, 0o666); err != nil {
			log.Fatal(err)
		}
	}
}

// generate returns the text of all files.
func generate() (map[string][]byte, error) {
	files := map[string][]byte{}
	sets := []*stubs.Set{{Suffix: "AVX512", First: "reducerFP16", Block: 1}, {Suffix: "AVX2", Block: 32}}
	for _, f := range families() {
		c := build.NewContext()
		c.ConstraintExpr("!purego")
		for _, set := range sets {
			f.write(&generator{Context: c, set: set, wide: set.Suffix == "AVX512"})
		}
		text, err := assemble(c)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.file, err)
		}
		files[f.file] = text
	}
	text, err := stubs.Source(command, *sets[0], *sets[1])
	if err != nil {
		return nil, err
	}
	files["vector_stubs_amd64.go"] = text
	return files, nil
}

func assemble(c *build.Context) ([]byte, error) {
	file, err := c.Result()
	if err != nil {
		return nil, err
	}
	if err := pass.Compile.Execute(file); err != nil {
		return nil, err
	}
	for _, f := range file.Functions() {
		if err := checkISA(f.Name, f.ISA); err != nil {
			return nil, err
		}
	}
	return printer.NewGoAsm(printer.Config{Name: "command: " + command, Pkg: "kernel"}).Print(file)
}

// checkISA returns an error if a function needs instructions outside those of its set.
func checkISA(name string, needs []string) error {
	has := []string{"MMX+" /* PREFETCHT0 */, "AVX", "AVX2", "F16C"}
	if name[len(name)-3:] == "512" {
		has = append(has, "AVX512F", "AVX512BW", "AVX512DQ", "AVX512VL", "BMI2")
	}
	for _, isa := range needs {
		if !slices.Contains(has, isa) {
			return fmt.Errorf("%s needs %s", name, isa)
		}
	}
	return nil
}
