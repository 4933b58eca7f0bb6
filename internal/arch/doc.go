// Package arch tests the structure of the repository that docs/architecture.md describes:
// imports by layer (imports.txt), pure packages, no package state, short files, no internal types in the API, and
// a comment for every package.
//
// Most tests only parse, so they work while other packages do not compile.
package arch
