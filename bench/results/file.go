package results

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Commit is the key of Header.Software for the measured commit of nexar.
const Commit = "nexar for Go, commit"

// A Header is the first line of a raw file: the setting, the machine and the software.
type Header struct {
	Setting  string            `json:"setting"` // "loopback-4"
	Title    string            `json:"title"`
	Ranks    int               `json:"ranks"`
	Day      string            `json:"day"`
	Rounds   int               `json:"rounds"`
	Budget   float64           `json:"budget_seconds"`
	Machine  Machine           `json:"machine"`
	Software map[string]string `json:"software"` // version by program, or Commit
	Systems  []System          `json:"systems"`  // in the order of the columns
}

// A Machine describes the machine of the measurement.
type Machine struct {
	CPU    string `json:"cpu"`
	Cores  int    `json:"cores"`
	Memory string `json:"memory"`
	Kernel string `json:"kernel"`
	Note   string `json:"note,omitempty"`
}

// A System is a column of the tables.
type System struct {
	Name      string `json:"name"`  // "openmpi-tcp"
	Label     string `json:"label"` // "Open MPI, TCP"
	Ours      bool   `json:"ours,omitempty"`
	Encrypted bool   `json:"encrypted,omitempty"`
	// Bound is set for the column that is not a system but the bound by memory.
	Bound   bool   `json:"bound,omitempty"`
	About   string `json:"about,omitempty"` // the description that the program prints
	Command string `json:"command,omitempty"`
}

// A File is the raw results of one setting.
type File struct {
	Header  Header
	Entries []Entry
}

// Suffix ends the names of raw files.
const Suffix = ".jsonl.gz"

// Write writes the file as one JSON object on each line, compressed. It replaces an existing file atomically.
func (f *File) Write(name string) error {
	var data bytes.Buffer
	text, err := gzip.NewWriterLevel(&data, gzip.BestCompression)
	if err != nil {
		return err
	}
	enc := json.NewEncoder(text)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(f.Header); err != nil {
		return err
	}
	for _, e := range f.Entries {
		if err := enc.Encode(e); err != nil {
			return err
		}
	}
	if err := text.Close(); err != nil {
		return err
	}
	part := name + ".part"
	if err := os.WriteFile(part, data.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(part, name)
}

// Read reads a file that [File.Write] has written.
func Read(name string) (*File, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	text, err := gzip.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	f := new(File)
	in := bufio.NewScanner(text)
	in.Buffer(nil, 1<<20)
	for number := 1; in.Scan(); number++ {
		var into any = &f.Header
		if number > 1 {
			f.Entries = append(f.Entries, Entry{})
			into = &f.Entries[len(f.Entries)-1]
		}
		if err := json.Unmarshal(in.Bytes(), into); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", name, number, err)
		}
	}
	if err := in.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if f.Header.Setting == "" {
		return nil, fmt.Errorf("%s: the first line names no setting", name)
	}
	return f, nil
}

// ReadAll reads the raw files of a directory. It returns them in the given order of settings,
// followed by other settings in the order of their names.
func ReadAll(dir string, order []string) ([]*File, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*"+Suffix))
	if err != nil {
		return nil, err
	}
	var files []*File
	for _, name := range names {
		f, err := Read(name)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	place := func(f *File) int {
		if i := slices.Index(order, f.Header.Setting); i >= 0 {
			return i
		}
		return len(order)
	}
	slices.SortStableFunc(files, func(a, b *File) int {
		if d := place(a) - place(b); d != 0 {
			return d
		}
		return strings.Compare(a.Header.Setting, b.Header.Setting)
	})
	return files, nil
}
