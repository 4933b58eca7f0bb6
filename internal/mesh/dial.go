package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

const (
	// addrTimeout is how long one of several addresses of a node is tried
	// before the next. A node with one address is given all the time there
	// is: on a busy host handshakes are slow.
	addrTimeout = 5 * time.Second
	// extraTimeout is how long a path that is not needed is tried at one
	// address, and extrasTimeout at all of them.
	extraTimeout  = 5 * time.Second
	extrasTimeout = 10 * time.Second
	// dialTimeout is how long a node is tried before it counts as unreachable.
	// It has said to the seed that it is there, so something is wrong with its
	// address, or in between.
	dialTimeout = 30 * time.Second
	// dialsMax is how many links a node makes at the same time. More would not
	// be faster: when many nodes start on few processors, handshakes that take
	// turns are done before those that are all under way time out.
	dialsMax = 4
	// A node that cannot be reached is tried again after redialFirst, then
	// after twice that, up to redialMax.
	redialFirst = 50 * time.Millisecond
	redialMax   = 2 * time.Second
)

// shares divides the time until ctx ends: the first half is for dialing, and a
// quarter more for those who wait to be dialed, as they know less of what is
// wrong. In the rest the others can still be told.
func shares(ctx context.Context) (dialing, waiting context.Context, cancel context.CancelFunc) {
	end, limited := ctx.Deadline()
	if !limited {
		ctx, cancel := context.WithCancel(ctx)
		return ctx, ctx, cancel
	}
	left := time.Until(end)
	waiting, cancelWaiting := within(ctx, left*3/4)
	dialing, cancelDialing := within(waiting, left/2)
	return dialing, waiting, func() { cancelDialing(); cancelWaiting() }
}

func within(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, d, fmt.Errorf("not within %v", d.Round(time.Millisecond)))
}

// dial links this node to a rank before it. It tries all paths and all
// addresses of the node in turn, again and again, until ctx ends. That someone
// else answers at one of them proves nothing: other hosts may have the same
// private address.
func (m *Mesh) dial(ctx context.Context, seat int) error {
	ctx, cancel := within(ctx, dialTimeout)
	defer cancel()
	n := m.node(seat)
	d := &dialing{mesh: m, seat: seat, node: n, addrs: n.AddrsFrom(m.node(m.self).Host), whyNot: make(map[*Path]string)}
	var last error
	for wait := redialFirst; ; wait = min(2*wait, redialMax) {
		r, err := d.round(ctx)
		if err == nil {
			err = m.connected(ctx, r, seat)
		}
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		unreachable := &UnreachableError{Rank: seat, Node: n.ID, Addrs: d.addrs, Err: m.orFiles(last)}
		if len(d.addrs) == 0 {
			unreachable.Addrs = n.Addrs
		}
		if d.hopeless {
			return unreachable
		}
		select {
		case <-ctx.Done():
			return unreachable
		case <-time.After(wait):
		}
	}
}

// connected makes the link of a route that this node has dialed. It stands when the
// other end has begun it, too: that may refuse a node of which the seed has not told it
// yet, after the connection has been made.
func (m *Mesh) connected(ctx context.Context, r *route, seat int) error {
	cfg := link.Config{Bulk: r.apart}
	if r.bulk != nil {
		cfg.BulkOver, cfg.BulkPipes = r.bulk.name(), r.bulk.Pipes
	}
	l, err := m.newLink(ctx, r, seat, cfg)
	if err != nil {
		return err
	}
	select {
	case <-l.Settled():
		return m.add(l, r)
	case <-l.Done():
		err = cmp.Or(l.Err(), transport.ErrPeerClosed)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	l.Abort()
	return err
}

// A dialing is the search for a route to a node.
type dialing struct {
	mesh     *Mesh
	seat     int
	node     membership.Node
	addrs    []string
	whyNot   map[*Path]string
	hopeless bool // the last round has shown that another one is of no use
}

// round tries all paths once, the best first.
func (d *dialing) round(ctx context.Context) (*route, error) {
	var notNear, notFar error
	for i := range d.mesh.cfg.Paths {
		switch p := &d.mesh.cfg.Paths[i]; {
		case !d.mesh.carries(p, d.node):
			d.lacks(p)
		case p.local():
			r, err := d.near(ctx, p)
			if err == nil {
				return r, nil
			}
			notNear = err
		default:
			c, addr, err := d.far(ctx, p)
			if err == nil {
				return d.beside(ctx, i, c, addr), nil
			}
			notFar = err
		}
	}
	return nil, cmp.Or(notFar, notNear, d.nothingInCommon())
}

// lacks notes that a node does not have the transport of a path.
func (d *dialing) lacks(p *Path) {
	if _, has := d.node.Endpoint(p.Transport.Name()); has {
		return
	}
	here := d.mesh.node(d.mesh.self).Host
	d.whyNot[p] = "no " + p.name() + " there"
	if p.local() && (here == "" || here != d.node.Host) {
		d.whyNot[p] = "not on this host"
	}
}

// nothingInCommon is the error for a node that has none of the paths of this one.
func (d *dialing) nothingInCommon() error {
	var own, theirs []string
	for i := range d.mesh.cfg.Paths {
		own = append(own, d.mesh.cfg.Paths[i].Transport.Name())
	}
	for _, e := range d.node.Endpoints {
		theirs = append(theirs, e.Transport)
	}
	return fmt.Errorf("no transport in common: this node has %s, the other one %s (NEXAR_TRANSPORTS)",
		strings.Join(own, ", "), strings.Join(theirs, ", "))
}

// near dials a path of this host.
func (d *dialing) near(ctx context.Context, p *Path) (*route, error) {
	limited, cancel := context.WithTimeout(ctx, extraTimeout)
	defer cancel()
	addr := p.addrs(d.node, nil)[0]
	c, err := p.Transport.Dial(limited, addr, d.node.ID.String())
	if err != nil {
		d.refused(ctx, p, addr, err)
		return nil, err
	}
	return &route{path: p, conn: c, why: "same host"}, nil
}

// refused notes why a path is not taken, and tells people what they may not
// have expected.
func (d *dialing) refused(ctx context.Context, p *Path, addr string, err error) {
	here := d.mesh.node(d.mesh.self).Host
	why := p.whyNot(err, here != "" && here == d.node.Host)
	if d.whyNot[p] == why || ctx.Err() != nil {
		return
	}
	d.whyNot[p] = why
	if !errors.Is(err, transport.ErrNotLocal) {
		d.mesh.log.Warn("a path to a node is not taken", d.mesh.note(d.seat), "path", p.name(), "addr", addr, "reason", err)
	}
}

// far dials the addresses of the node in turn, until one answers. If another
// node answers at all of them, there is nothing to wait for.
func (d *dialing) far(ctx context.Context, p *Path) (c transport.Conn, addr string, err error) {
	others := 0
	addrs := p.addrs(d.node, d.addrs)
	for _, addr := range addrs {
		c, fail := d.addr(ctx, p, addr)
		if fail == nil {
			return c, addr, nil
		}
		if err == nil || ctx.Err() == nil {
			err = fail
		}
		if errors.Is(fail, transport.ErrIdentity) {
			others++
		}
	}
	d.hopeless = others == len(addrs)
	return nil, "", cmp.Or(err, errors.New("no address that leads there from another host"))
}

func (d *dialing) addr(ctx context.Context, p *Path, addr string) (transport.Conn, error) {
	if len(d.addrs) > 1 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, addrTimeout)
		defer cancel()
	}
	return p.Transport.Dial(ctx, addr, d.node.ID.String())
}

// beside returns the route over the i-th path, on which the node has answered,
// and what is beside it: a better path, on which the node may not yet have
// listened when it was tried, or one for bulk.
func (d *dialing) beside(ctx context.Context, i int, c transport.Conn, addr string) *route {
	for k := range i {
		if p := &d.mesh.cfg.Paths[k]; p.local() && d.mesh.carries(p, d.node) {
			if r, err := d.near(ctx, p); err == nil {
				c.Close()
				return r
			}
		}
	}
	r := &route{path: &d.mesh.cfg.Paths[i], conn: c}
	for k := range d.mesh.cfg.Paths {
		if p := &d.mesh.cfg.Paths[k]; !p.local() {
			d.lacks(p)
		}
	}
	if p := d.mesh.bulkBeside(r.path, d.node); p != nil {
		if apart, err := d.bulk(ctx, p, addr); err == nil {
			r.bulk, r.apart = p, apart
		}
	}
	r.why = d.why()
	return r
}

// bulk dials the path for bulk, first at the address at which the node has
// answered before.
func (d *dialing) bulk(ctx context.Context, p *Path, first string) (c transport.Conn, err error) {
	all, cancel := context.WithTimeout(ctx, extrasTimeout)
	defer cancel()
	addrs := p.addrs(d.node, d.addrs)
	if slices.Contains(addrs, first) {
		addrs = append([]string{first}, slices.DeleteFunc(slices.Clone(addrs), func(a string) bool { return a == first })...)
	}
	for _, addr := range addrs {
		limited, cancel := context.WithTimeout(all, extraTimeout)
		c, fail := p.Transport.Dial(limited, addr, d.node.ID.String())
		cancel()
		if fail == nil {
			return c, nil
		}
		if err == nil {
			err = fail
			d.refused(ctx, p, addr, err)
		}
	}
	return nil, err
}

// why says why no other path was taken.
func (d *dialing) why() string {
	var why []string
	for i := range d.mesh.cfg.Paths {
		if s := d.whyNot[&d.mesh.cfg.Paths[i]]; s != "" {
			why = append(why, s)
		}
	}
	if len(why) == 0 {
		return "first choice"
	}
	return strings.Join(why, "; ")
}

func list(addrs []string) string {
	if len(addrs) == 0 {
		return "no address"
	}
	return strings.Join(addrs, ", ")
}
