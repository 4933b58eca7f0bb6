// Package arch holds the tests that keep the repository in the shape that
// docs/architecture.md describes: which packages are pure, what a package must
// not keep, how long files are, and that every package has import rules and a
// line in the document.
//
// The import rules themselves are in .golangci.yml ("make lint"). The tests only
// parse, so they work while other packages do not compile.
package arch
