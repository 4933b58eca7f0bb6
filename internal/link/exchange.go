package link

import (
	"log/slog"
	"math/rand/v2"
	"sync/atomic"

	"github.com/nexar-go/nexar/internal/link/lane"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// A Common has the settings that the links of a node share.
type Common struct {
	handler     Handler
	log         *slog.Logger
	idle        *IdleTimer
	detached    func(*Link, transport.MemorySharer, Purpose, error) // Config.Detached
	need        func(*Link)                                         // see NewPending; may be nil
	disconnects bool                                                // Config.Disconnects
	buffers     lane.Buffers                                        // for all lanes
	process     uint64                                              // names the process in names of links
	numbers     atomic.Uint64                                       // the last of wire.Resume: that of links that replace others is larger
}

// NewCommon returns a Common with the fields IdleTimer, Detached, Disconnects and Log of cfg. See [Common.NewPending] for need.
func NewCommon(h Handler, cfg Config, need func(*Link)) *Common {
	c := &Common{process: rand.Uint64() | 1, handler: h, log: cfg.Log, idle: cfg.IdleTimer, detached: cfg.Detached, disconnects: cfg.Disconnects, need: need}
	if c.idle == nil {
		c.idle = new(IdleTimer)
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	return c
}

// An exchange is the part of a link that its first frame or connection needs: the outboxes of the lanes, grants and credit.
type exchange struct {
	control outbox
	data    outbox
	bulk    bulk
	grants  grants
	claims  grants // for messages on the data lane

	claim     uint64 // of the current message; the reader of the data lane uses it
	isClaimed bool   // the current message is claimed

	credit Credit
	heard  atomic.Uint64 // frames received on the control lane

	in     [2]lane.In    // of the control and the data lane
	bulked atomic.Uint64 // bytes of payload received on the bulk lane
	read   atomic.Uint64 // all bytes received on the data and bulk lanes
	stall  stall
	tended tended

	confirms  confirms
	connected atomic.Bool              // the link has, or had, a connection
	leaving   atomic.Bool              // our goodbye was sent
	goodbye   atomic.Pointer[wire.Bye] // of the peer; nil before

	// Link.ending guards the fields below; see wire.Resume.
	binding transport.Conn // of the attachment that is being made
	session lane.Session
	// unanswered is why the link ends if the connection that it accepts is not used; nil if it does not end then.
	unanswered error
	began      waiting  // at the beginning of the latest connection
	delivery   Delivery // of the one before
}

// exchange returns the exchange of the link, and makes it if there is none. The caller may hold any lock but Link.making.
func (l *Link) exchange() *exchange {
	if x := l.exchanged.Load(); x != nil {
		return x
	}
	return l.makeExchange()
}

func (l *Link) makeExchange() *exchange {
	l.making.Lock()
	defer l.making.Unlock()
	if x := l.exchanged.Load(); x != nil {
		return x
	}
	x := new(exchange)
	x.session.Self = wire.LinkID{Process: l.common.process, Link: l.common.numbers.Add(1)}
	x.credit.init(l)
	x.control.init(l, wire.Control)
	x.data.init(l, wire.Data)
	x.bulk.link = l
	x.grants.init()
	x.claims.init()
	if len(l.quiet) > 0 {
		x.data.out.Commit(append(x.data.out.Buffer(len(l.quiet)), l.quiet...))
	}
	l.quiet = nil
	if l.dropping {
		x.close()
	}
	l.exchanged.Store(x)
	return x
}

// close drops all frames that are sent from now on.
func (x *exchange) close() {
	x.control.close()
	x.data.close()
	x.bulk.close()
}

// dropFrames drops all frames that are sent from now on.
func (l *Link) dropFrames() {
	l.making.Lock()
	l.dropping, l.quiet = true, nil
	x := l.exchanged.Load()
	l.making.Unlock()
	if x != nil {
		x.close()
	}
}

// postQuiet is [outbox.postQuiet] for a frame on the data lane. A link without an exchange needs none for it: a node tells all
// others that it has closed a communicator.
func (l *Link) postQuiet(add func(b []byte) []byte) {
	if !l.keepQuiet(add) {
		l.exchange().data.postQuiet(add)
	}
}

// keepQuiet keeps a frame that needs no connection for the exchange to come. It reports false if there is an exchange, or no room.
func (l *Link) keepQuiet(add func(b []byte) []byte) bool {
	if l.exchanged.Load() != nil {
		return false
	}
	l.making.Lock()
	defer l.making.Unlock()
	switch {
	case l.exchanged.Load() != nil || len(l.quiet) > quietMax-wire.FrameSizeMax:
		return false
	case !l.dropping:
		l.quiet = add(l.quiet)
	}
	return true
}
