package mesh

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nexar-go/nexar/internal/eyeballs"
	"github.com/nexar-go/nexar/internal/link"
	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/transport"
)

const (
	// addrTimeout bounds the first attempt at one address of a node that has several. Each further attempt has twice as long, and a node with
	// one address has all of dialTimeout: handshakes are slow on a busy host. addrTimeout also bounds the attempt at an optional path.
	addrTimeout = 5 * time.Second
	// localTimeout bounds the attempt to dial a path of this host. A node that listens there is alive,
	// and ranks that reach one of them otherwise share no memory with any.
	localTimeout = 4 * addrTimeout
	// dialTimeout is the time after which a node counts as unreachable. The node has told the
	// seed that it listens, so its address or the network is at fault.
	dialTimeout = 30 * time.Second
	// An unreachable node is tried again after redialFirst, then after twice that, up to
	// redialMax.
	redialFirst = 50 * time.Millisecond
	redialMax   = 2 * time.Second
	// brokenDials is the number of times that an address is dialed within a heartbeat timeout after a connection broke, each beside those
	// without an answer: a handshake repeats lost packets after ever longer times, in which the network may work again.
	brokenDials = 4
)

// A dialer makes connections to peers over the paths of a Reach. It works on copies of peers, and takes no lock.
type dialer struct {
	reach *Reach
	log   *slog.Logger
	// answerTimeout is the time for one path, and redialTimeout that for all of them, while a connection that broke is replaced.
	answerTimeout, redialTimeout time.Duration

	dialed, undialed atomic.Uint64 // see Mesh.Dials
}

func newDialer(cfg *Config, r *Reach) *dialer {
	return &dialer{reach: r, log: cfg.Log, answerTimeout: cfg.answerTimeout(), redialTimeout: cfg.demandTimeout(1)}
}

// dial dials a peer until connect has made a link of a connection. It tries all
// paths of the node in turn, and the addresses of each beside each other, repeatedly, until ctx ends or timeout has
// passed. If another node answers at an address, the others count: several hosts may have the
// same private address. Dials may run concurrently, and beside connections of the peer. Each
// attempt has a token of limit, unless that is nil, and timeout does not include the time that it waits for one.
func (d *dialer) dial(ctx context.Context, p *peer, limit *dialLimit, timeout time.Duration, connect func(context.Context, *route) error) error {
	s := d.search(p)
	var last error
	for wait, left := redialFirst, timeout; ; wait, s.addrTimeout = min(2*wait, redialMax), 2*s.addrTimeout {
		release, err := limit.acquire(ctx)
		if err == nil {
			began := time.Now()
			limited, cancel := context.WithTimeoutCause(ctx, left, notWithin(timeout))
			d.dialed.Add(1)
			if err = s.attempt(limited, connect); err != nil && !errors.Is(err, link.ErrConnected) {
				d.undialed.Add(1)
			}
			// A node that has closed a connection, and has not answered since, may have failed.
			isSilent := lossEvent(last) == membership.LinkClosed && time.Since(began) >= d.answerTimeout/2
			if last == nil || limited.Err() == nil || isSilent {
				last = err
			}
			cancel()
			release()
			left -= time.Since(began)
		}
		switch {
		case err == nil, errors.Is(err, link.ErrConnected):
			return nil
		case last == nil: // It has waited for other dials all the time.
			return fmt.Errorf("waiting for other dials: %w", err)
		}
		if left -= wait; !s.isFinal && left > 0 {
			select {
			case <-time.After(wait):
				continue
			case <-ctx.Done():
			}
		}
		unreachable := s.peer.unreachable(d.reach.outOfFiles(last))
		if len(s.addrs) > 0 {
			unreachable.Addrs = s.addrs
		}
		unreachable.Relayed = !d.reach.isNear(p.node.ID) && d.reach.hasRelay()
		return unreachable
	}
}

// attempt tries all paths and all addresses once, and makes a link of the first connection.
func (d *dialing) attempt(ctx context.Context, connect func(context.Context, *route) error) error {
	if !d.reach.canDial(d.node.ID) {
		d.isFinal = true
		return &NotNeighborError{Rank: d.peer.rank, Node: d.node.ID, Topology: d.reach.topology}
	}
	if !d.reach.isNear(d.node.ID) { // Relays may wait for each other's links, and this one may be needed for them.
		var cancel context.CancelFunc
		ctx, cancel = d.reach.untilNear(ctx, d.node.ID)
		defer cancel()
	}
	r, err := d.dialPaths(ctx)
	if err == nil {
		err = connect(ctx, r)
		d.isDeclined = d.peer.broken != nil && errors.Is(err, transport.ErrPeerClosed)
	}
	if err == nil {
		d.warn()
	}
	return err
}

// A dialing is the search for a route to a node.
type dialing struct {
	*dialer
	peer     *peer // when the search began
	node     *membership.Node
	addrs    []string
	whyNot   map[*Path]string // why a path is not taken
	failures []pathFailure    // to warn of when there is a link over another path
	isFinal  bool             // a further attempt would fail, too

	isDeclined bool // the peer has closed the last connection: those for bulk may deliver nothing of what it sends

	addrTimeout time.Duration // of this attempt
}

// A pathFailure is an unexpected reason why a path is not taken.
type pathFailure struct {
	path *Path
	addr string
	err  error
}

func (f *pathFailure) host() string { return hostOf(f.addr) }

// hostOf returns the host of an address, which may have no port.
func hostOf(addr string) string {
	if host, _, err := net.SplitHostPort(addr); err == nil {
		return host
	}
	return addr
}

// why returns the reason for not taking the path.
func (f pathFailure) why() string {
	return f.path.name() + ": " + strings.TrimPrefix(f.err.Error(), f.path.name()+": ")
}

// search begins the search for a route to a peer.
func (d *dialer) search(p *peer) *dialing {
	s := &dialing{
		dialer: d, peer: p, node: p.node,
		addrs: d.reach.reachable(p.node), whyNot: make(map[*Path]string), addrTimeout: addrTimeout,
	}
	for i := range d.reach.paths {
		if p := &d.reach.paths[i]; !p.Relay && !p.isOf(s.node) {
			s.whyNot[p] = s.absence(p)
		}
	}
	return s
}

// absence returns the reason why the node lacks a path.
func (d *dialing) absence(p *Path) string {
	if p.isLocal() && !d.reach.isOnHost(d.node) {
		return "not on this host"
	}
	return "no " + p.name() + " there"
}

// dialPaths tries all paths once, in the order of preference.
func (d *dialing) dialPaths(ctx context.Context) (*route, error) {
	var localErr, remoteErr error
	choices := d.choices()
	for n, i := range choices {
		p := &d.reach.paths[i]
		if p.isLocal() {
			r, err := d.dialLocal(ctx, p)
			if err == nil {
				return r, nil
			}
			localErr = err
			continue
		}
		c, addr, err := d.dialRemote(ctx, p, n == len(choices)-1)
		if err == nil {
			return d.complete(ctx, i, c, addr), nil
		}
		remoteErr = err
	}
	if remoteErr != nil && localErr != nil && !errors.Is(localErr, transport.ErrNotLocal) {
		return nil, fmt.Errorf("%w; %w", remoteErr, localErr)
	}
	return nil, cmp.Or(remoteErr, localErr, d.noCommonPath())
}

// choices returns the indexes of the paths to the node in the order of preference. Those whose connections broke are last, and behind them, while a
// connection is replaced, that for bulk.
func (d *dialing) choices() (list []int) {
	var last []int
	for i := range d.reach.paths {
		switch p := &d.reach.paths[i]; {
		case d.reach.carries(p, d.node):
			list = append(list, i)
		case d.peer.broken != nil && p.Whole && p.isOf(d.node) && d.reach.isNear(d.node.ID):
			last = append(last, i)
		}
	}
	failures := func(p *Path) int { return d.peer.failures(p, d.reach.addrs(p, d.node)...) }
	slices.SortStableFunc(list, func(i, k int) int { return cmp.Compare(failures(&d.reach.paths[i]), failures(&d.reach.paths[k])) })
	return append(list, last...)
}

// noCommonPath returns the error for a node that shares no path with this one.
func (d *dialing) noCommonPath() error {
	var own, theirs []string
	for _, p := range d.reach.paths {
		own = append(own, p.Transport.Name())
	}
	for _, e := range d.node.Endpoints {
		theirs = append(theirs, e.Transport)
	}
	return fmt.Errorf("no transport in common: this node has %s, the other node has %s; see NEXAR_TRANSPORTS",
		strings.Join(own, ", "), strings.Join(theirs, ", "))
}

// dialLocal dials a path of this host.
func (d *dialing) dialLocal(ctx context.Context, p *Path) (*route, error) {
	c, _, err := d.dialAddrs(ctx, p, d.reach.addrs(p, d.node), localTimeout)
	if err != nil {
		return nil, err
	}
	return &route{path: p, conn: c, why: "same host"}, nil
}

var errNoAddress = errors.New("it has no address that another host can reach")

// dialRemote dials a path between hosts. It sets isFinal if there is no address, or if other
// nodes answer at all of them. A path that is not the last one is given less time while a connection is replaced.
func (d *dialing) dialRemote(ctx context.Context, p *Path, isLast bool) (c transport.Conn, addr string, err error) {
	limit := dialTimeout
	if len(d.addrs) > 1 {
		limit = d.addrTimeout
	}
	if d.peer.broken != nil && !isLast {
		limit = d.answerTimeout
	}
	addrs := d.reach.addrs(p, d.node)
	if d.peer.isFruitless() {
		slices.SortStableFunc(addrs, func(a, b string) int { return cmp.Compare(d.peer.failures(p, a), d.peer.failures(p, b)) })
	}
	tries, delays := addrs, []time.Duration(nil)
	if d.peer.broken != nil && isLast && len(addrs) > 0 {
		tries, delays = rounds(addrs, brokenDials, d.redialTimeout/time.Duration(brokenDials*len(addrs)))
	}
	c, addr, err = d.dialAddrs(ctx, p, tries, limit, delays...)
	d.isFinal = len(addrs) == 0 || errors.Is(err, transport.ErrIdentity)
	return c, addr, err
}

// rounds returns the dials to some addresses in n rounds with pauses between them, and the delays of these dials.
func rounds(addrs []string, n int, pause time.Duration) (tries []string, delays []time.Duration) {
	return slices.Repeat(addrs, n), append(slices.Repeat([]time.Duration{eyeballs.Delay}, max(0, len(addrs)-1)), pause)
}

// probe dials a peer over the path of its connection, about brokenDials times within limit and once in an interval at most. It reports
// whether the peer has answered.
func (d *dialer) probe(ctx context.Context, p *peer, limit, interval time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	pause := max(interval, limit/brokenDials)
	tries, delays := rounds(d.reach.addrs(p.route.path, p.node), int(limit/pause)+1, pause)
	c, _, err := d.search(p).dialAddrs(ctx, p.route.path, tries, limit, delays...)
	if err == nil {
		c.Close()
	}
	return err == nil
}

// dialAddrs dials addresses of the node, each for at most limit, until the node answers at one. The next one is dialed beside an
// address without an answer, after the delays of [eyeballs.Race]. dialAddrs returns the address, or records why the path is not taken. The error is the
// last of the most significant ones: it is ErrIdentity only if every address belongs to another node.
func (d *dialing) dialAddrs(ctx context.Context, p *Path, addrs []string, limit time.Duration, delays ...time.Duration) (c transport.Conn, addr string, err error) {
	if len(addrs) == 0 {
		return nil, "", errNoAddress
	}
	r := eyeballs.Race[transport.Conn]{Discard: func(c transport.Conn) { c.Close() }, Delays: delays}
	for _, addr := range addrs {
		r.Attempts = append(r.Attempts, func(ctx context.Context, _ func()) (transport.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, limit)
			defer cancel()
			return p.Transport.Dial(ctx, addr, d.node.ID.String())
		})
	}
	winner, c, errs := r.Run(ctx)
	for i, err := range errs {
		if err != nil && c == nil && (winner < 0 || significance(err) >= significance(errs[winner])) {
			winner = i
		}
	}
	if err = errs[winner]; err != nil {
		d.notTaken(ctx, p, addrs[winner], err)
	}
	return c, addrs[winner], err
}

// significance compares the errors of dials to addresses of one node: an answer says more than none, and that of another node says nothing.
func significance(err error) int {
	switch {
	case errors.Is(err, transport.ErrIdentity):
		return 0
	case errors.Is(err, context.DeadlineExceeded):
		return 1
	}
	return 2
}

// warn logs the unexpected reasons why paths are not taken, once there is a link. Without one the node may have left, and otherwise the
// error of the dial has the reason.
func (d *dialing) warn() {
	for _, f := range d.failures {
		d.log.Warn("a path to a node is not taken", describe(d.peer.rank, *d.node), "path", f.path.name(), "addr", f.addr, "reason", f.err)
	}
	d.failures = nil
}

// notTaken records why a path is not taken.
func (d *dialing) notTaken(ctx context.Context, p *Path, addr string, err error) {
	f := pathFailure{p, addr, err}
	why, expected := d.absence(p), errors.Is(err, transport.ErrNotLocal)
	if !expected {
		why = f.why()
	}
	if d.whyNot[p] == why || ctx.Err() != nil {
		return
	}
	d.whyNot[p] = why
	if !expected {
		d.failures = append(d.failures, f)
	}
}

// complete returns the route over the i-th path, where the node has answered at addr. It tries
// better paths again, since the node may not have listened on them before, and dials the second
// connection for the bulk lane.
func (d *dialing) complete(ctx context.Context, i int, c transport.Conn, addr string) *route {
	r := &route{path: &d.reach.paths[i], conn: c}
	delete(d.whyNot, r.path)
	d.failures = slices.DeleteFunc(d.failures, func(f pathFailure) bool { return f.path == r.path })
	for k := range i {
		if p := &d.reach.paths[k]; p.isLocal() && d.reach.carries(p, d.node) {
			if r, err := d.dialLocal(ctx, p); err == nil {
				c.Close()
				return r
			}
		}
	}
	if p := d.reach.bulkBeside(r.path, d.node); p != nil {
		r.second = d.dialBulk(ctx, p, addr)
		if r.second != nil {
			r.bulk = p
		}
	}
	r.why = d.why()
	return r
}

// dialBulk dials the path for bulk, beginning with the address at which the node has answered on
// the main path. It returns nil if the node does not answer. Operations may wait while a connection is replaced, so that it is given less time.
func (d *dialing) dialBulk(ctx context.Context, p *Path, first string) transport.Conn {
	if d.peer.isFruitless() || d.isDeclined {
		d.whyNot[p] = p.name() + ": the last connections have delivered nothing"
		return nil
	}
	addrs := slices.Clone(d.reach.addrs(p, d.node))
	if i := slices.Index(addrs, first); i > 0 {
		addrs[0], addrs[i] = addrs[i], addrs[0]
	}
	limit := addrTimeout
	if d.peer.broken != nil {
		limit = d.answerTimeout
	}
	c, _, _ := d.dialAddrs(ctx, p, addrs, limit)
	return c
}

// why returns the reasons for not taking other paths.
func (d *dialing) why() string {
	var why []string
	for i := range d.reach.paths {
		if s := d.whyNot[&d.reach.paths[i]]; s != "" {
			why = append(why, s)
		}
	}
	if len(why) == 0 {
		return "first choice"
	}
	return strings.Join(why, "; ")
}
