package cuda_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/nexar-go/nexar/device"
	"github.com/nexar-go/nexar/device/devicetest"
	"github.com/nexar-go/nexar/hw/device/cuda"
	"github.com/nexar-go/nexar/hw/internal/cudafake"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a GPU of the fake driver.
func open(tb testing.TB, number int, cfg cuda.Config) (*cuda.Device, *cudafake.Fake) {
	tb.Helper()
	fake := cudafake.New(tb)
	cfg.Library = fake.Path
	d, err := cuda.Open(number, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := d.Close(); err != nil {
			tb.Error(err)
		}
	})
	return cuda.Controlled(d, fake), fake
}

func TestConformance(t *testing.T) {
	devicetest.Run(t, func(tb testing.TB) device.Device {
		d, _ := open(tb, 0, cuda.Config{})
		return d
	})
}
