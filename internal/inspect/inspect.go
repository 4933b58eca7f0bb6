// Package inspect reports the features of a machine that matter to nodes, and its faults.
//
// [Machine] opens the sockets that a node would open, examines them and closes them. It
// changes nothing. A fault of the machine is no error but a [Problem] in the [Report],
// with a fix.
package inspect

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"syscall"

	"github.com/nexar-go/nexar/internal/host"
	"github.com/nexar-go/nexar/transport/quic"
	"github.com/nexar-go/nexar/transport/shm"
)

// A Report describes this machine.
type Report struct {
	Listen     string   // address at which a node would listen
	UDP        bool     // a UDP socket can be opened; without one, nodes use TCP
	Advertised []string // addresses under which other hosts would dial it
	Transports []string // names of the transports that work

	ReadBuffer, WriteBuffer int  // of the UDP socket, in bytes
	WantedBuffer            int  // recommended size of both
	GSO                     bool // the system segments large UDP sends
	Watched                 bool // peers are told at once when a process ends

	Problems []Problem
}

// A Problem is a fault of a machine and how to fix it.
type Problem struct {
	Text  string
	Fix   string
	Fatal bool // no node can run
}

// Machine opens the sockets of a node that would listen at listen, and reports on them.
// Advertise, if not empty, is the address that it would advertise. Transports are the names
// of the transports that it would use.
func Machine(listen, advertise string, transports []string) Report {
	r := Report{Listen: listen}
	for _, name := range transports {
		if name != "shm" {
			r.Transports = append(r.Transports, name)
		}
	}
	r.Transports = append(r.Transports, "mem")
	if err := shm.Supported(); err == nil {
		r.Transports = append(r.Transports, "shm")
	} else if slices.Contains(transports, "shm") {
		r.Problems = append(r.Problems, Problem{
			Text: fmt.Sprintf("shared memory between processes is not available: %v", err),
			Fix:  "processes of this host use the loopback interface, which is slower; where shared memory is expected, look at the reason",
		})
	}
	tcp := slices.Contains(transports, "tcp")
	if tcp && !slices.Contains(transports, "quic") {
		r.listenTCP(listen, advertise)
		return r
	}
	e, err := quic.Listen(quic.Config{Addr: listen, Heartbeat: -1})
	if err != nil {
		r.Transports = slices.DeleteFunc(r.Transports, func(name string) bool { return name == "quic" })
		fix := "end the program that uses the port, or set NEXAR_LISTEN to another port"
		if fallback := tcp && !errors.Is(err, syscall.EADDRINUSE); fallback {
			fix += "; without UDP, nodes use TCP"
			r.Problems = append(r.Problems, Problem{Text: fmt.Sprintf("no UDP socket at %s: %v", listen, err), Fix: fix})
			r.listenTCP(listen, advertise)
			return r
		}
		r.Problems = append(r.Problems, Problem{Text: fmt.Sprintf("no UDP socket at %s: %v", listen, err), Fix: fix, Fatal: true})
		return r
	}
	defer e.Close()
	s := e.Socket()
	r.Listen, r.Advertised = e.Addr(), host.Addrs(e.Addr())
	r.ReadBuffer, r.WriteBuffer, r.WantedBuffer = s.ReadBuffer, s.WriteBuffer, s.WantedBuffer
	r.GSO, r.Watched, r.UDP = s.GSO, s.Watched, true
	if advertise != "" {
		r.Advertised = []string{advertise}
	}
	r.judge(s.Raise)
	return r
}

// listenTCP opens the TCP port of a node without UDP.
func (r *Report) listenTCP(listen, advertise string) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		r.Problems = append(r.Problems, Problem{
			Text: fmt.Sprintf("no TCP port at %s: %v", listen, err),
			Fix:  "end the program that uses the port, or set NEXAR_LISTEN to another port", Fatal: true,
		})
		return
	}
	defer l.Close()
	r.Listen, r.Advertised, r.Watched = l.Addr().String(), host.Addrs(l.Addr().String()), true
	if advertise != "" {
		r.Advertised = []string{advertise}
	}
	r.judge("")
}

// judge adds the problems of the sockets. Raise is the command that raises the buffers.
func (r *Report) judge(raise string) {
	add := func(text, fix string) { r.Problems = append(r.Problems, Problem{Text: text, Fix: fix}) }
	if have := min(r.ReadBuffer, r.WriteBuffer); have > 0 && have < r.WantedBuffer {
		add(fmt.Sprintf("UDP buffers of %d bytes lose packets in bursts; %d bytes are recommended", have, r.WantedBuffer), raise)
	}
	if !r.Watched {
		add("no TCP port of the same number as the UDP port: peers notice the end of this process only by its silence",
			"open the port of NEXAR_LISTEN for TCP, too")
	}
	if loopback := func(a string) bool {
		host, _, _ := net.SplitHostPort(a)
		ip := net.ParseIP(host)
		return ip != nil && ip.IsLoopback()
	}; !slices.ContainsFunc(r.Advertised, func(a string) bool { return !loopback(a) }) {
		add("only loopback addresses: only nodes of this host can dial this node",
			"connect the host to a network, or set NEXAR_ADVERTISE")
	}
}
