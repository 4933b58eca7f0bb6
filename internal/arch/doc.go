// Package arch holds the tests that keep the repository in the shape that
// docs/internals.md describes: pure packages, no state, short files, no internal
// types in the API, and import rules and a line in the document for every package.
//
// The import rules themselves are in .golangci.yml ("make lint"). The tests only
// parse, so they work while other packages do not compile.
package arch
