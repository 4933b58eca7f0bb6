// Package dl opens C libraries at run time, without cgo.
package dl

import (
	"errors"
	"fmt"
	"runtime"
	"strings"

	"github.com/ebitengine/purego"
)

// Library is an open C library. It is never closed.
type Library struct {
	// Name is the file name under which the dynamic linker found the library, such as libibverbs.so.1.
	Name string

	handle uintptr
}

// Open opens the first library of names that the dynamic linker finds. If it finds none, the
// error has the reason of the dynamic linker for each name. Other libraries do not see the symbols of the library.
func Open(names ...string) (*Library, error) { return open(purego.RTLD_LOCAL, names) }

// OpenGlobal is Open for a library whose symbols other libraries of the process use although they are not linked with it.
func OpenGlobal(names ...string) (*Library, error) { return open(purego.RTLD_GLOBAL, names) }

func open(scope int, names []string) (*Library, error) {
	// The dynamic linker keeps the reason of the last failure of each thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var reasons []string
	for _, name := range names {
		h, err := purego.Dlopen(name, purego.RTLD_NOW|scope)
		if err == nil {
			return &Library{name, h}, nil
		}
		// Most reasons begin with the name.
		reasons = append(reasons, name+": "+strings.TrimPrefix(err.Error(), name+": "))
	}
	return nil, errors.New("cannot open " + strings.Join(reasons, "; "))
}

// Symbol returns the address of a function or variable of the library.
func (l *Library) Symbol(name string) (uintptr, error) {
	runtime.LockOSThread() // as in open
	defer runtime.UnlockOSThread()
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
