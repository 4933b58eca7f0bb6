package attack

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/nexar-go/nexar/internal/testhost"
)

// A faultySwitch replaces the bridge of a network: it forwards Ethernet frames in this process, and
// damages and delays some of them.
type faultySwitch struct {
	t          *testing.T
	ports      []*os.File
	forwarders sync.WaitGroup

	mu     sync.Mutex
	rng    *rand.Rand
	portOf map[[6]byte]int // port of a hardware address
	faults faults
	ends   [2]int // ports between which a frame was forged last

	flipped, forged, delayed, repeated atomic.Int64
}

// faults are the probabilities, from 0 to 1, of the faults of a frame.
type faults struct {
	flip   float64 // one bit is flipped; checksums of IP, UDP and TCP detect it, and ARP has none, so its frames are spared
	forge  float64 // payload is altered and the checksum repaired, as an attacker would
	late   float64 // later frames overtake it, by up to 5 ms
	repeat float64 // the frame arrives twice
	port   uint16  // only frames to or from this port are forged; 0: all
	once   bool    // only one frame is forged
	length bool    // only frames that begin with a TLS record are forged: its length grows
}

// newSwitch disconnects the hosts from their bridge and forwards frames between them.
func newSwitch(t *testing.T, rng *rand.Rand, n *testhost.Network) *faultySwitch {
	s := &faultySwitch{t: t, rng: rng, portOf: make(map[[6]byte]int)}
	for i, h := range n.Hosts {
		port := fmt.Sprint("port", i)
		n.Bridge.Run("ip", "link", "set", port, "nomaster")
		if err := h.In(func() error { return disableOffload("eth0") }); err != nil {
			t.Fatal(err)
		}
		err := n.Bridge.In(func() error {
			f, err := openPort(port)
			s.ports = append(s.ports, f)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for i := range s.ports {
		s.forwarders.Go(func() { s.forward(i) })
	}
	t.Cleanup(s.close)
	return s
}

func (s *faultySwitch) close() {
	for _, f := range s.ports {
		f.Close()
	}
	s.forwarders.Wait()
}

// set changes the faults.
func (s *faultySwitch) set(f faults) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = f
}

// disableOffload has the kernel compute checksums and segment packets of an interface. A veth leaves
// both to hardware that it does not have.
func disableOffload(name string) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, command := range []uint32{unix.ETHTOOL_STSO, unix.ETHTOOL_SGSO, unix.ETHTOOL_STXCSUM} {
		value := struct{ command, data uint32 }{command, 0}
		var request struct {
			name [unix.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}
		copy(request.name[:], name)
		request.data = unsafe.Pointer(&value)
		_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&request)))
		if errno != 0 {
			return fmt.Errorf("ethtool command %#x of %s: %w", command, name, errno)
		}
	}
	return nil
}

// openPort opens an interface for whole frames.
func openPort(name string) (*os.File, error) {
	const protocols = unix.ETH_P_ALL>>8 | unix.ETH_P_ALL&0xff<<8 // in network order
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocols)
	if err != nil {
		return nil, fmt.Errorf("packet socket: %w", err)
	}
	device, err := net.InterfaceByName(name)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: protocols, Ifindex: device.Index})
	}
	if err == nil {
		// Frames that the kernel sends out of the port are not forwarded.
		err = unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1)
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 8<<20)
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("packet socket at %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// forward forwards the frames of a port.
func (s *faultySwitch) forward(from int) {
	for b := make([]byte, 1<<16); ; {
		n, err := s.ports[from].Read(b)
		if err != nil {
			return
		}
		if n < 14 {
			continue
		}
		frame := append([]byte(nil), b[:n]...)
		to, delay, times := s.damage(from, frame)
		deliver := func() {
			for range times {
				for _, i := range to {
					s.ports[i].Write(frame) // a frame that does not fit is lost
				}
			}
		}
		if delay == 0 {
			deliver()
			continue
		}
		s.forwarders.Go(func() {
			time.Sleep(delay)
			deliver()
		})
	}
}

// damage possibly damages a frame, and returns its destination ports, its delay and the number of
// copies.
func (s *faultySwitch) damage(from int, frame []byte) (to []int, delay time.Duration, times int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.portOf[[6]byte(frame[6:12])] = from
	if port, ok := s.portOf[[6]byte(frame[:6])]; ok {
		to = append(to, port)
	} else {
		for i := range s.ports {
			if i != from {
				to = append(to, i)
			}
		}
	}
	times = 1
	if s.rng.Float64() < s.faults.repeat {
		times = 2
		s.repeated.Add(1)
	}
	if s.rng.Float64() < s.faults.late {
		delay = time.Duration(1+s.rng.IntN(5)) * time.Millisecond
		s.delayed.Add(1)
	}
	switch chance := s.rng.Float64(); {
	case chance < s.faults.flip && binary.BigEndian.Uint16(frame[12:]) == unix.ETH_P_ARP: // A wrong address would cut a host off for a minute.
	case chance < s.faults.flip:
		frame[14+s.rng.IntN(len(frame)-14)] ^= 1 << s.rng.IntN(8)
		s.flipped.Add(1)
	case chance < s.faults.flip+s.faults.forge:
		if forge(frame, s.rng, s.faults) {
			s.forged.Add(1)
			s.ends = [2]int{from, to[0]}
			if s.faults.once {
				s.faults.forge = 0
			}
		}
	}
	return to, delay, times
}

// forge alters a byte of the payload of UDP or TCP over IPv4 and repairs the checksum. It returns
// false for frames without such a payload.
func forge(frame []byte, rng *rand.Rand, f faults) bool {
	const ethernet = 14
	if binary.BigEndian.Uint16(frame[12:]) != 0x0800 || len(frame) < ethernet+20 {
		return false
	}
	ip := frame[ethernet:]
	header, length := int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:]))
	if length > len(ip) || length < header+8 {
		return false
	}
	segment := ip[header:length]
	if f.port != 0 && binary.BigEndian.Uint16(segment) != f.port && binary.BigEndian.Uint16(segment[2:]) != f.port {
		return false
	}
	var at, sum int // offsets of the payload and of the checksum
	switch ip[9] {
	case unix.IPPROTO_UDP:
		at, sum = 8, 6
	case unix.IPPROTO_TCP:
		if len(segment) < 20 {
			return false
		}
		at, sum = int(segment[12]>>4)*4, 16
	default:
		return false
	}
	if at >= len(segment) {
		return false
	}
	payload := segment[at:]
	if !f.length {
		payload[rng.IntN(len(payload))] ^= byte(1 + rng.IntN(255))
	} else if low := 4; len(payload) > low && bytes.HasPrefix(payload, []byte{23, 3, 3}) && payload[low] < 255 {
		payload[low] += byte(1 + rng.IntN(255-int(payload[low])))
	} else {
		return false
	}
	binary.BigEndian.PutUint16(segment[sum:], 0)
	binary.BigEndian.PutUint16(segment[sum:], checksum(ip[12:20], ip[9], segment))
	return true
}

// checksum computes the checksum of TCP and UDP over IPv4.
func checksum(addrs []byte, protocol byte, segment []byte) uint16 {
	sum := uint32(protocol) + uint32(len(segment))
	for _, b := range [][]byte{addrs, segment} {
		for i := 0; i < len(b); i += 2 {
			word := uint32(b[i]) << 8
			if i+1 < len(b) {
				word |= uint32(b[i+1])
			}
			sum += word
		}
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}
