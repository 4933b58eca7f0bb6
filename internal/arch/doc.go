// Package arch tests the structure of the repository that docs/internals.md describes:
// pure packages, no package state, short files, no internal types in the API, and import
// rules and a row in the document for every package.
//
// The import rules themselves are in .golangci.yml ("make lint"). Most tests only parse, so
// they work while other packages do not compile.
package arch
