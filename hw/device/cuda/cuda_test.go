package cuda_test

import (
	"fmt"
	"testing"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/device/devicetest"
	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/internal/cudadriver"
	"github.com/nexar-go/nexar/hw/internal/cudafake"
	"github.com/nexar-go/nexar/internal/require"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A driver is the CUDA driver under test: the fake, or the driver of the machine.
type driver struct {
	path string
	fake *cudafake.Fake // nil for the driver of the machine
}

// fakeDriver returns the fake driver.
func fakeDriver(tb testing.TB) driver {
	tb.Helper()
	fake := cudafake.New(tb)
	return driver{fake.Path, fake}
}

// machine returns the driver of the machine. Without a GPU it skips the test, or fails it if NEXAR_REQUIRE lists
// "cuda".
func machine(tb testing.TB) driver {
	tb.Helper()
	list, err := cuda.List("")
	require.Have(tb, "cuda", err == nil && len(list) > 0, fmt.Sprintf("there is no GPU: %v", err))
	return driver{cudadriver.LibraryName, nil}
}

// drivers runs a test with the fake driver, and again with the driver of the machine.
func drivers(t *testing.T, test func(t *testing.T, dr driver)) {
	t.Run("fake", func(t *testing.T) { test(t, fakeDriver(t)) })
	t.Run("machine", func(t *testing.T) { test(t, machine(t)) })
}

// gpus returns the number of GPUs.
func (dr driver) gpus(tb testing.TB) int {
	tb.Helper()
	list, err := cuda.List(dr.path)
	must(tb, err)
	return len(list)
}

// open opens a GPU.
func (dr driver) open(tb testing.TB, number int, cfg cuda.Config) *cuda.Device {
	tb.Helper()
	cfg.Library = dr.path
	d, err := cuda.Open(number, cfg)
	must(tb, err)
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Error(err)
		}
	})
	return cuda.Controlled(tb, d, dr.fake)
}

// open opens a GPU of the fake driver.
func open(tb testing.TB, number int, cfg cuda.Config) (*cuda.Device, *cudafake.Fake) {
	tb.Helper()
	dr := fakeDriver(tb)
	return dr.open(tb, number, cfg), dr.fake
}

func TestConformance(t *testing.T) {
	drivers(t, func(t *testing.T, dr driver) {
		devicetest.Run(t, func(tb testing.TB) device.Device { return dr.open(tb, 0, cuda.Config{}) })
	})
}
