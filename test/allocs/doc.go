// Package allocs tests that calls from a package of a user allocate no memory. It imports nothing of the
// module but its root: what the compiler knows about functions that root calls, and may inline, depends on
// the imports of the package that it compiles.
package allocs
