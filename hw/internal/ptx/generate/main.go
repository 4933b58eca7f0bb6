// Generate writes the kernels of device/cuda to a folder, one file for each type.
package main

import (
	"log"
	"os"
	"path/filepath"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/hw/internal/ptx"
)

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: generate FOLDER")
	}
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(os.Args[1], name+".ptx"), []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
	for t := device.Int8; t <= device.Float8E5M2; t++ {
		write(t.String(), ptx.Module(t))
	}
	write("copy", ptx.CopyModule())
}
