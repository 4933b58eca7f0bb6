package rendezvous

import "time"

// limits are what one side allows the other. Tests make them shorter.
type limits struct {
	hello   time.Duration // from the conn to a proof of the token
	step    time.Duration // for each later step of being admitted
	write   time.Duration // for one message to be taken by the peer
	linger  time.Duration // for the peer to read a last message
	ping    time.Duration // between two pings of the seed
	silence time.Duration // without a message: the peer is gone
	tell    time.Duration // for nodes to say where they are
	pause   time.Duration // between two questions where they are
	away    time.Duration // for one node to be back, before it counts as gone
	back    time.Duration // for nodes that have no conn to the seed to be back, before the world is over
	over    time.Duration // at the most, for all seeds to learn that their world is over
}

// lastingSilence is how long a seed that lasts, or a node of one, may be silent.
const lastingSilence = 5 * time.Second

// withDefaults fills in what is zero. Where seeds last a conn that ends is made again,
// and it matters to find out that a seed has gone.
func (l limits) withDefaults(lasting bool) limits {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&l.hello, 5*time.Second)
	set(&l.step, 10*time.Second)
	set(&l.write, 10*time.Second)
	set(&l.linger, 2*time.Second)
	if lasting {
		set(&l.ping, time.Second)
		set(&l.silence, lastingSilence)
	}
	set(&l.ping, 5*time.Second)
	set(&l.silence, 30*time.Second)
	set(&l.tell, 2*time.Second)
	set(&l.pause, 250*time.Millisecond)
	// A node may find out only by its silence that the seed has gone, and then has to
	// find another.
	set(&l.away, 3*lastingSilence)
	set(&l.back, 30*time.Second)
	set(&l.over, 10*time.Second)
	return l
}
