package cuda

import (
	"sync"

	"github.com/nexar-go/nexar/hw/internal/cudadriver"
	"github.com/nexar-go/nexar/hw/internal/cudafake"
)

// A control is the state of the methods Hold and FailCopy of a Device, for package devicetest.
type control struct {
	fake *cudafake.Fake

	mu       sync.Mutex
	held     int
	streams  []cudadriver.Stream
	copies   int
	failures map[int]error
}

var controls sync.Map // of *Device

// Controlled lets a test hold the streams of a device and fail its copies.
func Controlled(d *Device, fake *cudafake.Fake) *Device {
	c := &control{fake: fake, failures: make(map[int]error)}
	controls.Store(d, c)
	d.hooks.copy = func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.copies++
		return c.failures[c.copies]
	}
	d.hooks.stream = func(s cudadriver.Stream) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.streams = append(c.streams, s)
		if c.held > 0 {
			fake.Hold(s, true)
		}
	}
	return d
}

func controlOf(d *Device) *control {
	c, _ := controls.Load(d)
	return c.(*control)
}

// Hold implements devicetest.Holder.
func (d *Device) Hold() (release func()) {
	c := controlOf(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held++
	for _, s := range c.streams {
		c.fake.Hold(s, true)
	}
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.held--; c.held == 0 {
			for _, s := range c.streams {
				c.fake.Hold(s, false)
			}
		}
	})
}

// FailCopy implements devicetest.Failer.
func (d *Device) FailCopy(n int, err error) {
	c := controlOf(d)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.failures[c.copies+n] = err
}
