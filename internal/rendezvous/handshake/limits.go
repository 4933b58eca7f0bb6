package handshake

import "time"

// Limits bound how long one side waits for the other. Zero means the default; tests set
// shorter ones.
type Limits struct {
	Hello   time.Duration // from the connection to a proof of the token
	Step    time.Duration // each later step of joining
	Write   time.Duration // until the peer takes a message
	Linger  time.Duration // until the peer has read a last message
	Ping    time.Duration // between two pings of the seed
	Silence time.Duration // after which a silent peer counts as gone
	Poll    time.Duration // until nodes answer a status poll
	Pause   time.Duration // between two status polls
	Away    time.Duration // until a node without a connection to a durable seed counts as gone
	Return  time.Duration // until a world without connected nodes is over
	End     time.Duration // until a seed ends although others may not know that the world is over
}

// AddrsMax is the largest number of addresses of a node in a view.
const AddrsMax = 16

// DurableSilence is Silence for a durable seed and its nodes: their connections are made
// again, so it matters to detect a dead seed.
const DurableSilence = 5 * time.Second

// WithDefaults fills in the defaults, which depend on whether the seed is durable.
func (l Limits) WithDefaults(durable bool) Limits {
	set := func(d *time.Duration, to time.Duration) {
		if *d == 0 {
			*d = to
		}
	}
	set(&l.Hello, 5*time.Second)
	set(&l.Step, 10*time.Second)
	set(&l.Write, 10*time.Second)
	set(&l.Linger, 2*time.Second)
	if durable {
		set(&l.Ping, time.Second)
		set(&l.Silence, DurableSilence)
	}
	set(&l.Ping, 5*time.Second)
	set(&l.Silence, 30*time.Second)
	set(&l.Poll, 2*time.Second)
	set(&l.Pause, 250*time.Millisecond)
	// A node may detect a dead seed only by its silence, and then has to find another.
	set(&l.Away, 3*DurableSilence)
	set(&l.Return, 30*time.Second)
	set(&l.End, 10*time.Second)
	return l
}
