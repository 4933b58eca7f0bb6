// Command arm64 writes the kernels for arm64. They use NEON, which every arm64 processor has.
//
// It is run by "go generate", which passes the output directory. An error ends it before a file
// is written. The assembler of Go knows few vector instructions on floating-point numbers, so
// this package encodes them. The tests of package kernel check the encodings, on arm64 or in an
// emulator:
//
//	GOARCH=arm64 go test -exec qemu-aarch64 ./internal/kernel
package main

import (
	"log"
	"os"
	"path/filepath"

	"github.com/nexar-go/nexar/internal/kernel/_asm/stubs"
)

// command is named in the header of generated files.
const command = "go generate"

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: arm64 directory")
	}
	set := stubs.Set{Suffix: "NEON", Block: blockBytes}
	files := map[string][]byte{}
	for _, f := range []struct {
		name  string
		write func(p *program)
	}{
		{"reduce_arm64.s", writeReductions},
		{"divide_arm64.s", writeDivisions},
		{"convert_arm64.s", writeConversions},
	} {
		p := newProgram(&set)
		f.write(p)
		files[f.name] = p.text.Bytes()
	}
	text, err := stubs.Source(command, set)
	if err != nil {
		log.Fatal(err)
	}
	files["vector_stubs_arm64.go"] = text
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(os.Args[1], name), text, 0o666); err != nil {
			log.Fatal(err)
		}
	}
}
