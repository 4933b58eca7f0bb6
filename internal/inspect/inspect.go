// Package inspect finds out what a machine offers to nexar, and what is wrong
// with it.
//
// Most callers call Machine with the settings that a node would have. It opens
// the socket of a node, looks at it and closes it; it changes nothing and keeps
// nothing. What it finds wrong is no error: it is in the Report, for people, with
// how to mend it.
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

// A Report says what this machine offers to nexar.
type Report struct {
	Listen     string   // the address that a node would listen at
	UDP        bool     // there is a UDP socket; without it nodes use TCP alone
	Advertised []string // where other hosts would look for it
	Transports []string // that can be used

	ReadBuffer, WriteBuffer int  // of its socket, in bytes
	WantedBuffer            int  // what both should be
	GSO                     bool // large sends are cut into packets by the system
	Watched                 bool // peers notice at once when a process ends

	Problems []Problem
}

// A Problem is what is wrong with a machine.
type Problem struct {
	What  string
	Mend  string
	Fatal bool // nexar does not work
}

// Machine opens the sockets of a node at listen, and says what it finds. Advertise, if
// not empty, is the address that other nodes are told, and transports are the names of
// those that are wanted.
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
			What: fmt.Sprintf("no shared memory between processes: %v", err),
			Mend: "nothing, if that is as it has to be: they talk over the loopback interface, which is slower",
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
		mend := "end the program that uses the port, or set NEXAR_LISTEN to another one"
		if fallback := tcp && !errors.Is(err, syscall.EADDRINUSE); fallback {
			mend += "; without UDP nodes use TCP alone"
			r.Problems = append(r.Problems, Problem{What: fmt.Sprintf("no UDP socket at %s: %v", listen, err), Mend: mend})
			r.listenTCP(listen, advertise)
			return r
		}
		r.Problems = append(r.Problems, Problem{What: fmt.Sprintf("no UDP socket at %s: %v", listen, err), Mend: mend, Fatal: true})
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

// listenTCP opens the port of a node that does without UDP.
func (r *Report) listenTCP(listen, advertise string) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		r.Problems = append(r.Problems, Problem{
			What: fmt.Sprintf("no TCP port at %s: %v", listen, err),
			Mend: "end the program that uses the port, or set NEXAR_LISTEN to another one", Fatal: true,
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

// judge says what is wrong with what was found.
func (r *Report) judge(raise string) {
	add := func(what, mend string) { r.Problems = append(r.Problems, Problem{What: what, Mend: mend}) }
	if have := min(r.ReadBuffer, r.WriteBuffer); have > 0 && have < r.WantedBuffer {
		add(fmt.Sprintf("UDP buffers of %d bytes, which lose packets in bursts; %d would do", have, r.WantedBuffer), raise)
	}
	if !r.Watched {
		add("no TCP port beside the UDP port: the end of this process is noticed only by its silence",
			"let TCP through on the port of NEXAR_LISTEN, too")
	}
	if loopback := func(a string) bool {
		host, _, _ := net.SplitHostPort(a)
		ip := net.ParseIP(host)
		return ip != nil && ip.IsLoopback()
	}; !slices.ContainsFunc(r.Advertised, func(a string) bool { return !loopback(a) }) {
		add("no address but loopback: only nodes of this host can reach this one",
			"connect the host to a network, or set NEXAR_ADVERTISE")
	}
}
