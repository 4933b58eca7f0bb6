// Package arch holds the tests that keep the repository in the shape that
// docs/architecture.md describes: who may import whom, which packages are pure,
// how long files and functions are, what a package must not keep.
//
// Nothing is called from here. Most people meet it when one of its tests fails:
// the message says what the rule is for. Whoever adds a package gives it a line
// in the table of rooms (imports_test.go) and in docs/architecture.md.
//
// The tests only parse, so they work while other packages do not compile.
package arch
