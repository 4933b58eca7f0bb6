package checkpoint

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
)

// magic begins every file of a rank.
const magic = "nexar checkpoint rank file\n"

// chunk is the number of bytes that are read at a time.
const chunk = 1 << 20

func byteOrder() string {
	if binary.NativeEndian.Uint16([]byte{1, 0}) == 1 {
		return "little"
	}
	return "big"
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

func sumText(sum uint32) string { return fmt.Sprintf("%08x", sum) }

// A file is the file of a rank or the manifest. Tests make it fail.
type file interface {
	io.Writer
	Sync() error
	Close() error
}

// writeFile writes the parts of a rank to a new file, and returns where they are. Parts without elements are not written.
func writeFile(path string, create func(path string) (file, error), items []Item, parts []part) (list []tensor, err error) {
	f, err := create(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closing := f.Close(); err == nil {
			err = closing
		}
	}()
	if _, err := io.WriteString(f, magic); err != nil {
		return nil, err
	}
	at := int64(len(magic))
	for i, p := range parts {
		t := tensor{Name: items[i].name(), elem: p.elem, Total: p.total, Value: p.value}
		if len(p.bytes) > 0 {
			if _, err := f.Write(p.bytes); err != nil {
				return nil, err
			}
			sum := crc32.Checksum(p.bytes, castagnoli())
			t.Parts = []tensorPart{{filepath.Base(path), at, p.offset, len(p.bytes) / p.elem.Size, sumText(sum)}}
			at += int64(len(p.bytes))
		}
		list = append(list, t)
	}
	return list, f.Sync()
}

// create creates a file, which must not exist.
func create(path string) (file, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
}

// syncFolder makes the entries of a folder durable.
func syncFolder(path string) error {
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// A reader reads the files of a checkpoint.
type reader struct {
	folder string
	files  map[string]*os.File
	buffer []byte
}

func (r *reader) close() {
	for _, f := range r.files {
		f.Close()
	}
}

// open returns a file of the checkpoint.
func (r *reader) open(name string) (*os.File, error) {
	if f := r.files[name]; f != nil {
		return f, nil
	}
	path := filepath.Join(r.folder, name)
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if !info.Mode().IsRegular() { // To open a pipe could block for ever.
		return nil, fmt.Errorf("%s: %w: want a regular file", path, ErrDamaged)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	head := make([]byte, len(magic))
	if _, err := io.ReadFull(f, head); err != nil || string(head) != magic {
		f.Close()
		return nil, fmt.Errorf("%s: %w: it does not begin with %q", path, ErrDamaged, magic)
	}
	if r.files == nil {
		r.files = make(map[string]*os.File)
	}
	r.files[name] = f
	return f, nil
}

// read reads count elements of a vector, from offset on, into dst. It reads parts whole, to check their sums.
func (r *reader) read(t *tensor, dst []byte, offset, count int) error {
	for _, p := range t.Parts {
		if p.Offset+p.Count <= offset || p.Offset >= offset+count {
			continue
		}
		f, err := r.open(p.File)
		if err != nil {
			return err
		}
		if err := r.readPart(f, t, p, dst, offset); err != nil {
			return err
		}
	}
	return nil
}

// readPart copies the elements of a part that belong to dst. dst begins with element offset.
func (r *reader) readPart(f *os.File, t *tensor, p tensorPart, dst []byte, offset int) error {
	if r.buffer == nil {
		r.buffer = make([]byte, chunk)
	}
	sum := uint32(0)
	length := int64(p.Count) * int64(t.Size)
	shift := int64(p.Offset-offset) * int64(t.Size) // of the part in dst
	for done := int64(0); done < length; {
		piece := r.buffer[:min(chunk, length-done)]
		if _, err := f.ReadAt(piece, p.At+done); err != nil {
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("%w: %q has %d bytes from byte %d on, and the file ends before", ErrDamaged, t.Name, length, p.At)
			}
			return fmt.Errorf("%s: %w", f.Name(), err)
		}
		sum = crc32.Update(sum, castagnoli(), piece)
		from, to := max(0, shift+done), min(int64(len(dst)), shift+done+int64(len(piece)))
		if from < to {
			copy(dst[from:to], piece[from-shift-done:])
		}
		done += int64(len(piece))
	}
	if got := sumText(sum); got != p.Sum {
		return fmt.Errorf("%s: %w: %q has elements %d to %d with the checksum %s, want %s", f.Name(), ErrDamaged, t.Name, p.Offset, p.Offset+p.Count-1, got, p.Sum)
	}
	return nil
}
