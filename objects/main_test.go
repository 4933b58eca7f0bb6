package objects

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/test/worldtest"
)

func TestMain(m *testing.M) {
	worldtest.Setup()
	goleak.VerifyTestMain(m)
}
