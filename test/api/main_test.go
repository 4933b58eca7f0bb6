// Package api tests calls, handles, configurations, seeds and joining within one process, by the public API.
package api

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/test/worldtest"
)

func TestMain(m *testing.M) {
	worldtest.Setup()
	goleak.VerifyTestMain(m)
}
