// Package allocs tests that calls from a package of a user allocate no memory. It imports only the root
// package of the module: whether the compiler inlines a function, and knows that its arguments do not
// escape, depends on the imports of the package that it compiles.
package allocs
