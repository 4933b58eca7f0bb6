//go:build linux

package rdma

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/nexar-go/nexar/hw/internal/verbs"
	"github.com/nexar-go/nexar/transport"
)

// A device is an open port of a device, with the protection domain of all its conns.
type device struct {
	d      *verbs.Device
	pd     *verbs.PD
	port   verbs.Port
	gid    verbs.GID
	mtu    int
	events *os.File
	// loose says that the device checks writes against the registration, and not against the window, as the
	// software RDMA of Linux does. A grant then needs a registration of exactly its bytes.
	loose bool

	mu     sync.Mutex
	cache  map[*transport.Mapping]*cached
	order  []*cached // least recently used first
	bytes  int       // of the cache
	limit  int
	pinMin int
	uses   int  // conns, exposures and regions that have not been released: they need pd
	closed bool // freed after the last use
}

// openDevice opens the device and port of cfg, or of the variables if it has none.
func openDevice(cfg Config) (dev *device, err error) {
	if cfg, err = cfg.withVariables(); err != nil {
		return nil, err
	}
	if cfg.MTU != 0 && (cfg.MTU < 256 || cfg.MTU > 4096 || cfg.MTU&(cfg.MTU-1) != 0) {
		return nil, fmt.Errorf("MTU %d: must be 256, 512, 1024, 2048 or 4096", cfg.MTU)
	}
	if cfg.ServiceLevel < 0 || cfg.ServiceLevel > 15 || cfg.TrafficClass < 0 || cfg.TrafficClass > 255 {
		return nil, fmt.Errorf("service level %d, traffic class %d: must be at most 15 and 255", cfg.ServiceLevel, cfg.TrafficClass)
	}
	names, err := verbs.Devices()
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: the host has none, or its driver is not loaded", verbs.ErrNoDevice)
	}
	if cfg.Device != "" {
		names = []string{cfg.Device}
	}
	var reasons []error
	for _, name := range names {
		dev, err := openNamed(name, cfg)
		if err == nil {
			return dev, nil
		}
		reasons = append(reasons, fmt.Errorf("device %s: %w", name, err))
	}
	return nil, errors.Join(reasons...)
}

func openNamed(name string, cfg Config) (dev *device, err error) {
	dev = &device{cache: make(map[*transport.Mapping]*cached), limit: cmp.Or(cfg.CacheBytes, 1<<30), pinMin: cmp.Or(cfg.PinMin, 256<<10)}
	if dev.d, err = verbs.Open(name); err != nil {
		return nil, err
	}
	opened := dev
	defer func() {
		if err != nil {
			opened.close()
			dev = nil
		}
	}()
	_, err = os.Stat("/sys/class/infiniband/" + name + "/parent") // Only rdma_rxe has it.
	dev.loose = err == nil
	if err := dev.choosePort(cfg.Port); err != nil {
		return nil, err
	}
	if dev.gid, err = chooseGID(dev.port, dev.d.GIDs(dev.port), cfg.GID); err != nil {
		return nil, err
	}
	dev.mtu = dev.port.MTU
	if cfg.MTU != 0 {
		dev.mtu = min(dev.mtu, cfg.MTU)
	}
	if dev.pd, err = dev.d.NewPD(); err != nil {
		return nil, err
	}
	dev.events, err = dev.d.Events()
	return dev, err
}

// choosePort chooses a port, the first active one if wanted is 0.
func (dev *device) choosePort(wanted int) error {
	for n := 1; n <= dev.d.Ports(); n++ {
		if wanted != 0 && n != wanted {
			continue
		}
		p, err := dev.d.Port(n)
		if err != nil {
			return err
		}
		if p.Active {
			dev.port = p
			return nil
		}
	}
	if wanted != 0 {
		return fmt.Errorf("port %d is down, or there is none: the device has %d", wanted, dev.d.Ports())
	}
	return fmt.Errorf("none of its %d ports is active", dev.d.Ports())
}

// chooseGID chooses an address of a port.
func chooseGID(port verbs.Port, gids []verbs.GID, wanted string) (verbs.GID, error) {
	if len(gids) == 0 {
		return verbs.GID{}, fmt.Errorf("port %d has no GID", port.Number)
	}
	if wanted == "" {
		return slices.MaxFunc(gids, func(a, b verbs.GID) int { return preference(a) - preference(b) }), nil
	}
	addr, notAddr := netip.ParseAddr(wanted)
	index, notIndex := strconv.Atoi(wanted)
	var have []string
	for _, g := range gids {
		if notIndex == nil && g.Index == index || notAddr == nil && netip.AddrFrom16(g.GID).Unmap() == addr.Unmap() && g.Kind != verbs.GIDRoCEv1 {
			return g, nil
		}
		have = append(have, fmt.Sprintf("%d (%v)", g.Index, netip.AddrFrom16(g.GID).Unmap()))
	}
	return verbs.GID{}, fmt.Errorf("GID %q: port %d has %s", wanted, port.Number, strings.Join(have, ", "))
}

// preference is higher for RoCE v2, and for addresses that can be routed.
func preference(g verbs.GID) (p int) {
	if g.Kind == verbs.GIDRoCEv2 {
		p += 2
	}
	if a := netip.AddrFrom16(g.GID).Unmap(); !a.IsLinkLocalUnicast() {
		p++
	}
	return p
}

// watch waits for failures of the device and its port, until the device has failed or until interrupt.
func (dev *device) watch(failed func(error)) {
	for {
		e, err := dev.d.Event(dev.events)
		switch {
		case err != nil: // after interrupt, too
			failed(fmt.Errorf("the events of device %s: %w", dev.d.Name, err))
			return
		case e.Fatal:
			failed(fmt.Errorf("device %s has failed or was removed", dev.d.Name))
			return
		case e.Down == dev.port.Number:
			failed(fmt.Errorf("port %d of device %s is down", e.Down, dev.d.Name))
		}
	}
}

func (dev *device) interrupt() { dev.events.Close() }

// close frees the device with the last use of it: a call on a conn that has ended may still use a region.
func (dev *device) close() {
	dev.mu.Lock()
	dev.uses++ // until all is closed here
	dev.closed = true
	dev.dropCacheLocked()
	dev.mu.Unlock()
	exposures.closeAll(dev)
	if dev.events != nil {
		dev.events.Close()
	}
	dev.letGo()
}

// hold keeps the device from being freed until letGo. It fails with transport.ErrClosed if the device has been freed.
func (dev *device) hold() error {
	dev.mu.Lock()
	defer dev.mu.Unlock()
	if dev.freedLocked() {
		return transport.ErrClosed
	}
	dev.uses++
	return nil
}

func (dev *device) freedLocked() bool { return dev.closed && dev.uses == 0 }

func (dev *device) letGo() {
	dev.mu.Lock()
	defer dev.mu.Unlock()
	dev.uses--
	dev.freeLocked()
}

// freeLocked frees a device that is closed and not used.
func (dev *device) freeLocked() {
	if !dev.freedLocked() {
		return
	}
	if dev.pd != nil {
		dev.pd.Close()
	}
	if dev.d != nil {
		dev.d.Close()
	}
}
