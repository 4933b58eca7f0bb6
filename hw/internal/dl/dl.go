// Package dl opens C libraries at run time, without cgo.
package dl

import (
	"errors"
	"fmt"

	"github.com/ebitengine/purego"
)

// Library is an open C library. It is never closed.
type Library struct {
	// Name is the file name under which the dynamic linker found the library, such as libibverbs.so.1.
	Name string

	handle uintptr
}

// Open opens the first library of names that the dynamic linker finds. If it finds none, the
// error has the reason of the dynamic linker for each name.
func Open(names ...string) (*Library, error) {
	var reasons []error
	for _, name := range names {
		h, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL)
		if err == nil {
			return &Library{name, h}, nil
		}
		reasons = append(reasons, err)
	}
	return nil, fmt.Errorf("cannot open %s: %w", names[0], errors.Join(reasons...))
}

// Symbol returns the address of a function or variable of the library.
func (l *Library) Symbol(name string) (uintptr, error) {
	addr, err := purego.Dlsym(l.handle, name)
	if err != nil {
		return 0, fmt.Errorf("%s has no %s; a newer version may have it: %w", l.Name, name, err)
	}
	return addr, nil
}

// Func sets *fn, a pointer to a variable of a function type, to the function of the library. The rules for
// types are those of [purego.RegisterFunc].
func (l *Library) Func(fn any, name string) error {
	addr, err := l.Symbol(name)
	if err != nil {
		return err
	}
	purego.RegisterFunc(fn, addr)
	return nil
}
