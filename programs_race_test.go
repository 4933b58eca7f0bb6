//go:build race

package nexar_test

import "testing"

// around is for tests with programs, which run without the race detector only.
func around(m *testing.M) *testing.M { return m }
