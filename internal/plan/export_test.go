package plan

import "testing"

// Add adds a collective until the test ends. Parallel tests run after that, and cannot call Add.
func Add(t *testing.T, d Descriptor) Collective {
	t.Helper()
	const c = CollectiveLimit - 1
	t.Chdir(".") // It panics in a parallel test.
	collectives[c] = &d
	t.Cleanup(func() { collectives[c] = nil })
	return c
}
