package arch

import (
	"fmt"
	"go/ast"
	"go/types"
	"strings"
	"testing"
)

// lockMethods are the methods that take or release a lock.
const lockMethods = " Lock Unlock RLock RUnlock TryLock "

// checkLocked finds functions with a name that ends in Locked that take or release a lock. They
// are called with the lock held and do not release it: work without the lock is returned as
// effects.
func checkLocked(tr *tree) (problems []string) {
	for _, f := range tr.files {
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil || f.test || !strings.HasSuffix(fn.Name.Name, "Locked") {
				continue
			}
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if _, ok := n.(*ast.FuncLit); ok {
					return false // may run without the lock
				}
				if call, ok := n.(*ast.CallExpr); ok {
					if s, ok := call.Fun.(*ast.SelectorExpr); ok && strings.Contains(lockMethods, " "+s.Sel.Name+" ") {
						problems = append(problems, fmt.Sprintf("%s: %s calls %s: a function with this suffix neither takes nor releases the lock", tr.at(call), fn.Name.Name, s.Sel.Name))
					}
				}
				return true
			})
		}
	}
	return problems
}

// checkHandOver finds functions that release a lock which they have not taken, and functions that take
// a lock and never release it. Their names must say so: one that ends in Unlock, or begins with unlock,
// releases the lock of its caller, and one that begins with lock leaves it taken. Calls of such
// functions count as taking or releasing a lock of their receiver. The order is that of the source, and
// a function literal belongs to the function around it.
func checkHandOver(tr *tree) (problems []string) {
	for _, f := range tr.files {
		for _, d := range f.ast.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Body == nil || f.test || strings.HasSuffix(fn.Name.Name, "Locked") {
				continue
			}
			problems = append(problems, handOver(tr, fn)...)
		}
	}
	return problems
}

// A lockEvent is a call that takes or releases a lock.
type lockEvent struct {
	call  *ast.CallExpr
	lock  string // the mutex, "o.mu", or, for a call of a function that hands a lock over, its receiver, "o"
	takes bool
}

// handOver is checkHandOver for a function.
func handOver(tr *tree, fn *ast.FuncDecl) (problems []string) {
	takes, releases := handOverName(fn.Name.Name)
	events := lockEvents(fn.Body)
	for i, e := range events {
		if e.takes {
			if !takes && !anyEvent(events, false, e.lock) {
				problems = append(problems, fmt.Sprintf("%s: %s takes the lock of %s and never releases it: its name must begin with lock", tr.at(e.call), fn.Name.Name, e.lock))
			}
		} else if !releases && !anyEvent(events[:i], true, e.lock) {
			problems = append(problems, fmt.Sprintf("%s: %s releases the lock of %s, which it has not taken: return the work as effects, or end the name in Unlock", tr.at(e.call), fn.Name.Name, e.lock))
		}
	}
	return problems
}

// handOverName reports whether a function of this name takes a lock for its caller, or releases one.
func handOverName(name string) (takes, releases bool) {
	switch name {
	case "Lock", "RLock", "TryLock", "TryRLock":
		return true, false
	case "Unlock", "RUnlock":
		return false, true
	}
	return strings.HasPrefix(name, "lock"), strings.HasPrefix(name, "unlock") || strings.HasSuffix(name, "Unlock")
}

// lockEvents returns the calls in a body that take or release a lock, arguments before their call.
func lockEvents(body *ast.BlockStmt) (events []lockEvent) {
	var open []ast.Node
	ast.Inspect(body, func(n ast.Node) bool {
		if n != nil {
			open = append(open, n)
			return true
		}
		last := open[len(open)-1]
		open = open[:len(open)-1]
		call, ok := last.(*ast.CallExpr)
		if !ok {
			return true
		}
		s, ok := call.Fun.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if takes, releases := handOverName(s.Sel.Name); takes || releases {
			events = append(events, lockEvent{call, types.ExprString(s.X), takes})
		}
		return true
	})
	return events
}

// anyEvent reports whether one of the events takes, or releases, the lock. A lock of "o" is that of "o.mu".
func anyEvent(events []lockEvent, takes bool, lock string) bool {
	for _, e := range events {
		if e.takes == takes && (e.lock == lock || strings.HasPrefix(e.lock, lock+".") || strings.HasPrefix(lock, e.lock+".")) {
			return true
		}
	}
	return false
}

func TestLocked(t *testing.T) { report(t, checkLocked(load(t))) }

func TestHandOver(t *testing.T) { report(t, checkHandOver(load(t))) }

func TestLockedFinds(t *testing.T) {
	tr := parse(t, map[string]string{"internal/x/x.go": `package x

func (c *C) sendLocked() {
	c.mu.Unlock()
	c.write()
	c.mu.Lock()
}

func (c *C) fineLocked() { c.spawn(func() { c.mu.Lock() }) }

func (c *C) send() { c.mu.Lock(); defer c.mu.Unlock() }
`})
	if problems := checkLocked(tr); len(problems) != 2 {
		t.Errorf("found %q, want two problems in sendLocked", problems)
	}
}

func TestHandOverFinds(t *testing.T) {
	tr := parse(t, map[string]string{"internal/x/x.go": `package x

func (c *C) notify() {
	c.mu.Unlock()
	c.owner.Notify()
	c.mu.Lock()
}

func (c *C) view(f func()) {
	c.mu.Unlock()
	defer c.mu.Lock()
	f()
}

func (c *C) begin() []byte { c.mu.Lock(); return c.pending }

func (c *C) other(d *D) { c.mu.Lock(); d.mu.Unlock() }

func (c *C) half() { c.write(c.lockBuffer()) }

func (c *C) early() { c.commitUnlock(nil); c.lockBuffer() }

func (c *C) lockBuffer() []byte { c.mu.Lock(); return c.pending }

func (c *C) commitUnlock(b []byte) { c.pending = b; c.mu.Unlock() }

func (c *C) post() { c.x.commitUnlock(append(c.x.lockBuffer(), 1)) }

func (c *C) quiet() { b := c.lockBuffer(); c.pending = b; c.mu.Unlock() }

func (c *C) deferred() { c.mu.RLock(); defer func() { c.mu.RUnlock() }() }

func (c *C) run() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.more {
		c.mu.Unlock()
		c.write(nil)
		c.mu.Lock()
	}
}
`})
	expect(t, checkHandOver(tr), "notify releases the lock of c.mu", "view releases the lock of c.mu",
		"begin takes the lock of c.mu", "other takes the lock of c.mu", "other releases the lock of d.mu",
		"half takes the lock of c", "early releases the lock of c")
}
