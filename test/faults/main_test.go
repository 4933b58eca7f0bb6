package faults

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/test/worldtest"
)

func TestMain(m *testing.M) {
	worldtest.Setup()
	goleak.VerifyTestMain(m)
}

// A writer is a function that implements io.Writer.
type writer func(p []byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }
