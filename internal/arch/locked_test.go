package arch

import (
	"fmt"
	"go/ast"
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

func TestLocked(t *testing.T) { report(t, checkLocked(load(t))) }

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
