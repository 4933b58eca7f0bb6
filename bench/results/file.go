package results

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// Commit is the key of Header.Software for the measured commit of nexar.
const Commit = "nexar for Go, commit"

// A Header is the first line of a raw file: the setting, the machine and the software.
type Header struct {
	Setting  string            `json:"setting"` // "shm-4"
	Title    string            `json:"title"`
	Ranks    int               `json:"ranks"`
	Day      string            `json:"day"`
	Rounds   int               `json:"rounds"`
	Budget   float64           `json:"budget_seconds"`
	Busy     float64           `json:"busy"` // processors that other work used before the first turn
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

// A System is a library in one configuration.
type System struct {
	Name      string `json:"name"`  // "openmpi-tcp"
	Label     string `json:"label"` // "Open MPI"
	Ours      bool   `json:"ours,omitempty"`
	Encrypted bool   `json:"encrypted,omitempty"`
	About     string `json:"about,omitempty"` // the description that the program prints
	Command   string `json:"command,omitempty"`
	Missing   string `json:"missing,omitempty"` // why it could not be measured
}

// A File is the raw results of one setting.
type File struct {
	Header  Header
	Entries []Entry

	far float64 // see classify
}

// Suffix ends the names of raw files.
const Suffix = ".jsonl"

// Write writes the file as one JSON object on each line. It replaces an existing file atomically.
func (f *File) Write(name string) error {
	var data bytes.Buffer
	enc := json.NewEncoder(&data)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(f.Header); err != nil {
		return err
	}
	for _, e := range f.Entries {
		if err := enc.Encode(e); err != nil {
			return err
		}
	}
	part := name + ".part"
	if err := os.WriteFile(part, data.Bytes(), 0o644); err != nil {
		return err
	}
	return os.Rename(part, name)
}

// Read reads a file that [File.Write] has written.
func Read(name string) (*File, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	f := new(File)
	in := json.NewDecoder(bytes.NewReader(text))
	if err := in.Decode(&f.Header); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if f.Header.Setting == "" {
		return nil, fmt.Errorf("%s: the first line names no setting", name)
	}
	for {
		var e Entry
		if err := in.Decode(&e); errors.Is(err, io.EOF) {
			return f, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: entry %d: %w", name, len(f.Entries)+1, err)
		}
		f.Entries = append(f.Entries, e)
	}
}

// ReadAll reads the raw files of the settings, in their order, from a directory. Settings without a file are left out.
func ReadAll(dir string, settings []string) ([]*File, error) {
	var files []*File
	for _, setting := range settings {
		f, err := Read(filepath.Join(dir, setting+Suffix))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}
