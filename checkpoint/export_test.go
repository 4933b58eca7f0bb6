package checkpoint

import "io"

// A File is the file of a rank or the manifest.
type File interface {
	io.Writer
	Sync() error
	Close() error
}

// Fail makes the files of a Saver fail: wrap gets each new file.
func (s *Saver) Fail(wrap func(path string, f File) File) {
	s.create = func(path string) (file, error) {
		f, err := create(path)
		if err != nil {
			return nil, err
		}
		return wrap(path, f), nil
	}
}

// The beginnings of the names of folders that are no checkpoints.
const PartialPrefix, OldPrefix = partialPrefix, oldPrefix

// WriterName is the name of the file that names the Saver that may write.
const WriterName = writerName
