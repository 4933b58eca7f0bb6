package handshake

import (
	"cmp"
	"time"
)

// Limits bound the waits of one side for the other. Zero means the default; tests set shorter
// ones.
type Limits struct {
	Hello   time.Duration // from the connection to a proof of the token
	Step    time.Duration // each later step of joining
	Write   time.Duration // until the peer takes a message
	Linger  time.Duration // until the peer has read a last message
	Ping    time.Duration // between two pings of the seed
	Silence time.Duration // after which a silent peer counts as gone
	Poll    time.Duration // until nodes answer a question, or their host says whether their process has ended
	Pause   time.Duration // between two status polls
	Away    time.Duration // until a node without a connection to the seed counts as gone
	Return  time.Duration // until a world without connected nodes is over
	End     time.Duration // until a seed ends although others may not know that the world is over
}

// AddrsMax is the maximum number of addresses of a node in a view.
const AddrsMax = 16

// DurableSilence is the default of Silence for a seed with a replicated log and its nodes. It is short, since
// nodes can connect again to another seed.
const DurableSilence = 5 * time.Second

// ReachTimeout bounds an attempt of a node to reach a seed again, and that of a seed to reach the addresses that a node advertises. It is below
// the silence after which a node gives up its seed.
const ReachTimeout = 3 * DurableSilence / 5

// PauseMin and PauseMax bound the pause between two attempts of a seed or node to reach a seed that it has lost.
const (
	PauseMin = 50 * time.Millisecond
	PauseMax = time.Second
)

// WithDefaults fills in the defaults. They are shorter for a seed with a replicated log (durable).
func (l Limits) WithDefaults(durable bool) Limits {
	ping, silence := 5*time.Second, 30*time.Second
	if durable {
		ping, silence = time.Second, DurableSilence
	}
	return Limits{
		Hello:   cmp.Or(l.Hello, 5*time.Second),
		Step:    cmp.Or(l.Step, 10*time.Second),
		Write:   cmp.Or(l.Write, 10*time.Second),
		Linger:  cmp.Or(l.Linger, 2*time.Second),
		Ping:    cmp.Or(l.Ping, ping),
		Silence: cmp.Or(l.Silence, silence),
		Poll:    cmp.Or(l.Poll, 2*time.Second),
		Pause:   cmp.Or(l.Pause, 250*time.Millisecond),
		Away:    cmp.Or(l.Away, 3*DurableSilence), // A node may detect a dead seed only by its silence, and must then find another.
		Return:  cmp.Or(l.Return, 30*time.Second),
		End:     cmp.Or(l.End, 10*time.Second),
	}
}
