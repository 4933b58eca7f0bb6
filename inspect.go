package nexar

import (
	"fmt"
	"net"
	"slices"

	"github.com/nexar-go/nexar/internal/host"
	"github.com/nexar-go/nexar/transport/quic"
	"github.com/nexar-go/nexar/transport/shm"
)

// A Report says what this machine offers to nexar.
type Report struct {
	Listen     string   // the UDP address that a node would listen at
	Advertised []string // where other hosts would look for it
	Transports []string

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

// Inspect opens a socket as Join would with these settings, and says what it
// finds. The error is a malformed setting.
func Inspect(cfg Config) (Report, error) {
	cfg, err := cfg.fill()
	if err != nil {
		return Report{}, opError("inspect", err)
	}
	r := Report{Listen: cfg.Listen, Transports: []string{"quic", "tcp", "mem"}}
	if err := shm.Supported(); err == nil {
		r.Transports = append(r.Transports, "shm")
	} else if slices.Contains(cfg.Transports, "shm") {
		r.Problems = append(r.Problems, Problem{
			What: fmt.Sprintf("no shared memory between processes: %v", err),
			Mend: "nothing, if that is as it has to be: they talk over the loopback interface, which is slower",
		})
	}
	e, err := quic.Listen(quic.Config{Addr: cfg.Listen, Heartbeat: -1})
	if err != nil {
		r.Problems = append(r.Problems, Problem{
			What: fmt.Sprintf("no UDP socket at %s: %v", cfg.Listen, err),
			Mend: "end the program that uses the port, or set NEXAR_LISTEN to another one", Fatal: true,
		})
		return r, nil
	}
	defer e.Close()
	s := e.Socket()
	r.Listen, r.Advertised = e.Addr(), host.Addrs(e.Addr())
	r.ReadBuffer, r.WriteBuffer, r.WantedBuffer = s.ReadBuffer, s.WriteBuffer, s.WantedBuffer
	r.GSO, r.Watched = s.GSO, s.Watched
	if cfg.Advertise != "" {
		r.Advertised = []string{cfg.Advertise}
	}
	r.judge(s.Raise)
	return r, nil
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
