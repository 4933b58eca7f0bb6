// Package docs tests the README and the guides: it compiles their Go code, runs the tests in it and their shell commands, and compares what
// these print.
package docs
