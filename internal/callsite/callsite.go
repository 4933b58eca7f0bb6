// Package callsite finds the lines of a program that wait in calls of nexar, from the stacks of its goroutines. A call costs
// nothing: the stacks are read when somebody asks for a call that lasts for long, at most every half second.
package callsite

import (
	"fmt"
	"path"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/nexar-go/nexar/trace"
)

const (
	// readEvery is the least time between two reads of the stacks, which stop the program for about a microsecond for each goroutine. They are
	// asked for calls that have lasted for twice as long, and so are later than the beginning of the call.
	readEvery = trace.StalledAfter / 2
	// goroutinesMax bounds the goroutines: with more, no stacks are read.
	goroutinesMax = 8192
	// module is the path of nexar.
	module = "github.com/nexar-go/nexar"
)

// A Reader reads the stacks of the goroutines of this process. Several goroutines may use it.
type Reader struct {
	// Operations are names of operations: a function with one of these names makes no other operation.
	Operations []string

	mu    sync.Mutex
	at    time.Time
	own   string                                               // path of the module of the program
	seen  map[[len(runtime.StackRecord{}.Stack0)]uintptr]found // results of find; most stacks are the same in the next read
	calls []call
	main  string
}

// A found is the result for a stack: a call, if it has a function, and the line of the main goroutine, if it is that one.
type found struct {
	call
	main string
}

// seenMax bounds the stacks that are remembered.
const seenMax = 1024

// A call is a function of nexar that a goroutine is in, and where the program has called it.
type call struct{ function, site string }

// Call returns where the program waits in an operation such as "all_reduce" that has lasted for trace.StalledAfter: "train/main.go:42". It returns two
// places if goroutines wait in both, and nothing if there are more or none.
func (r *Reader) Call(op string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readLocked()
	for _, isMeant := range []func(function string) bool{
		func(function string) bool { return function == op },
		func(function string) bool { return strings.HasPrefix(function, op) },
		func(function string) bool { return strings.Contains(function, op) },
		func(function string) bool { return strings.HasPrefix(function, "wait") },      // for a Handle
		func(function string) bool { return !slices.Contains(r.Operations, function) }, // a call that consists of operations
	} {
		var sites []string
		for _, c := range r.calls {
			if isMeant(c.function) {
				sites = append(sites, c.site)
			}
		}
		slices.Sort(sites)
		if sites = slices.Compact(sites); len(sites) > 2 {
			return ""
		}
		if len(sites) > 0 {
			return strings.Join(sites, " or ")
		}
	}
	return ""
}

// Main returns where the main goroutine of a program is that has been in no call for trace.StalledAfter, or nothing if that is unknown.
func (r *Reader) Main() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.readLocked()
	return r.main
}

// readLocked reads the stacks, unless it has done so shortly before.
func (r *Reader) readLocked() {
	if !r.at.IsZero() && time.Since(r.at) < readEvery {
		return
	}
	r.at, r.calls, r.main = time.Now(), nil, ""
	if runtime.NumGoroutine() > goroutinesMax {
		return
	}
	if info, ok := debug.ReadBuildInfo(); ok && r.own == "" {
		r.own = info.Main.Path
	}
	stacks := make([]runtime.StackRecord, runtime.NumGoroutine()+64)
	n, ok := runtime.GoroutineProfile(stacks)
	if !ok {
		return
	}
	for i := range stacks[:n] {
		s, known := r.seen[stacks[i].Stack0]
		if !known {
			if len(r.seen) == seenMax || r.seen == nil {
				r.seen = make(map[[len(runtime.StackRecord{}.Stack0)]uintptr]found)
			}
			s = r.find(stacks[i].Stack())
			r.seen[stacks[i].Stack0] = s
		}
		if s.function != "" {
			r.calls = append(r.calls, s.call)
		}
		if s.main != "" {
			r.main = s.main
		}
	}
}

// find looks for a call and the main goroutine in the innermost frames of a stack.
func (r *Reader) find(stack []uintptr) (s found) {
	frames := runtime.CallersFrames(stack)
	var place, function string // the innermost frame of the program; the outermost of nexar inside of a frame of the program
	isFound, waits, isTest := false, false, false
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		if packageOf(f.Function) == module+"/internal/callsite" { // This goroutine reads the stacks.
			return found{}
		}
		switch kindOf(f.Function, f.File, r.own) {
		case library:
			if !isFound {
				function, waits = f.Function, waits || isWait(f.Function)
			}
		case program:
			if place == "" {
				place = site(f)
			}
			if function != "" && !isFound {
				isFound = true
				if waits && isCall(function) {
					s.call = call{snake(function), site(f)}
				}
			}
		case other:
		}
		isTest = isTest || f.Function == "testing.(*M).Run" // The program is in other goroutines.
		if f.Function == "main.main" && !isTest {
			s.main = place
		}
	}
	return s
}

// The kinds of functions.
const (
	other   = iota // of the standard library
	library        // of nexar
	program
)

// kindOf returns the kind of a function in the program of a module. The commands, examples and tests of nexar are programs. A function
// literal of nexar that the compiler has put into a function of the program has a name there, so that its file decides.
func kindOf(function, file, own string) int {
	pkg := packageOf(function)
	first, _, _ := strings.Cut(pkg, "/")
	folder, isOurs := strings.CutPrefix(file, root())
	if isOurs {
		folder = path.Dir(folder)
	} else {
		folder, isOurs = strings.TrimPrefix(pkg, module+"/"), isIn(pkg, module)
	}
	switch {
	case isOurs:
		isProgram := func(of string) bool { return isIn(folder, of) }
		if strings.HasSuffix(file, "_test.go") || slices.ContainsFunc([]string{"cmd", "examples", "test", "bench", "internal/command"}, isProgram) {
			return program
		}
		return library
	case first == "main" || strings.Contains(first, ".") || own != "" && isIn(pkg, own):
		return program
	}
	return other
}

// root returns the folder of the files of nexar, as the stacks name it.
func root() string {
	_, file, _, _ := runtime.Caller(0)
	return strings.TrimSuffix(file, "internal/callsite/callsite.go")
}

// isIn reports whether a package is at a path, or below it.
func isIn(pkg, path string) bool { return pkg == path || strings.HasPrefix(pkg, path+"/") }

// isCall reports whether a function of nexar is one that programs call.
func isCall(function string) bool {
	pkg := packageOf(function)
	return !isIn(pkg, module+"/internal") && !isIn(pkg, module+"/transport")
}

// isWait reports whether a function of nexar waits for other ranks if it waits.
func isWait(function string) bool {
	pkg := packageOf(function)
	return isIn(pkg, module+"/internal/engine") || isIn(pkg, module+"/internal/p2p") || isIn(pkg, module+"/internal/rpc") || isIn(pkg, module+"/internal/comm") ||
		pkg == module && strings.HasPrefix(snake(function), "wait")
}

// packageOf returns the path of the package of a function.
func packageOf(function string) string {
	folder := strings.LastIndexByte(function[:strings.IndexAny(function+"[", "[")], '/') + 1
	name, _, _ := strings.Cut(function[folder:], ".")
	return function[:folder] + name
}

// snake returns the name of a function as operations are named: "all_reduce" for "github.com/nexar-go/nexar.AllReduce[...]".
func snake(function string) string {
	name := strings.TrimSuffix(function, "]")
	if i := strings.IndexByte(name[len(packageOf(function)):], '['); len(name) < len(function) {
		name = name[:len(packageOf(function))+i]
	}
	name = name[strings.LastIndexByte(name, '.')+1:]
	var b strings.Builder
	for i, c := range name {
		if unicode.IsUpper(c) && i > 0 {
			b.WriteByte('_')
		}
		b.WriteRune(unicode.ToLower(c))
	}
	return b.String()
}

// site returns the line of a frame, with the folder of its file.
func site(f runtime.Frame) string {
	dir, file := path.Split(strings.ReplaceAll(f.File, `\`, "/"))
	if dir = path.Base(dir); dir != "." && dir != "/" {
		file = dir + "/" + file
	}
	return fmt.Sprintf("%s:%d", file, f.Line)
}
