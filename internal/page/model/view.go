package model

import "time"

// A View shows a cluster at one moment. Its texts are whole sentences or phrases, and may have names from peers.
type View struct {
	Sentence string   // the state of the whole cluster
	More     []string // other findings, the most important first
	Level    Level
	Time     time.Time // of the newest answer of the seed, by the clock of this process
	Silent   time.Time // since when the seed does not answer; zero: it answers
	Problem  string    // why it does not

	Formed  bool
	Epoch   uint64
	World   int // nodes with which the world forms
	Joined  int
	Waiting int

	Rate    float64 // bytes of calls per second, of all ranks; -1: not known yet
	Memory  uint64  // bytes of the heaps of all ranks
	Hosts   []Host  // by their first rank
	Waits   []Wait  // the longest first, at most waitsMax
	Calls   []Call  // the current one first, at most callsMax
	Classes []Class // of links, the fastest first
	Links   []Link  // that carry data, the busiest first, at most linksMax
	Changes []Change
	Rates   []Rate // the oldest first, at most ratesMax
}

// A Level says how urgent a state is. Higher levels are more urgent.
type Level int

// Levels of ranks, hosts and the cluster.
const (
	Calm    Level = iota // as it should be
	Forming              // nodes are missing, or in an earlier epoch
	Slow                 // a rank is late
	Broken               // ranks wait in vain, or do not answer
)

// A Host has the ranks of one host.
type Host struct {
	Name  string
	Level Level  // the highest of its ranks
	Words string // "8 ranks work", "rank 7 is late; 7 ranks wait"
	Rate  float64
	Ranks []Rank // by rank
}

// A State of a rank, in one word.
type State string

// States of ranks.
const (
	Works    State = "works"
	Waits    State = "waits"
	Late     State = "late"
	Deadlock State = "deadlock"
	NoAnswer State = "no answer"
	Behind   State = "behind" // in an earlier epoch
	Joining  State = "joining"
)

// level returns how urgent a state is.
func (s State) level() Level {
	switch s {
	case Behind, Joining:
		return Forming
	case Late:
		return Slow
	case Deadlock, NoAnswer:
		return Broken
	}
	return Calm
}

// A Rank is one node. Its JSON leaves out fields without a value, since a browser gets thousands of ranks.
type Rank struct {
	Node   string    `json:"-"` // NodeID in hexadecimal: the same as long as the process lives
	Rank   int       // -1: none
	PID    string    `json:",omitzero"`
	State  State     `json:",omitzero"`
	Words  string    `json:",omitzero"` // the state with its reason: "in no call; others wait for it"
	Since  time.Time `json:",omitzero"` // of the state, or of the call if it works; zero: not known, or for less than a second
	Call   string    `json:",omitzero"` // that is running, or else the last one: "all_reduce #812 (2 × float32, sum)"
	Busy   bool      `json:",omitzero"` // Call is running
	Plan   string    `json:",omitzero"` // algorithm of Call
	Round  string    `json:",omitzero"` // "1 of 2"
	For    string    `json:"-"`         // the ranks that Call waits for: "rank 7"
	Site   string    `json:",omitzero"` // file and line of the program: of Call or, if it is in none, of its main goroutine
	Rate   float64   `json:",omitzero"` // bytes of calls per second, of three digits; -1: not known yet
	Memory uint64    `json:",omitzero"` // bytes of the heap, of three digits; 0: not known
}

// A Wait says that ranks wait for others in the same call.
type Wait struct {
	Who   string // "ranks 0–6"
	For   string // "rank 7"
	Call  string
	Since time.Time
	Level Level
}

// A Class is a kind of links: the transport that carries them.
type Class struct {
	Name    string
	Links   int
	Stalled int     // of Links
	Rate    float64 // bytes sent per second
}

// A Link is the direction of a link from a rank to another.
type Link struct {
	From, To int
	Class    string // "tcp", "tcp over 2 relays"
	Rate     float64
	Sent     uint64
	Notes    string // "12 lost packets"
}

// A Change is one change of the members of the world.
type Change struct {
	Time  time.Time
	Epoch uint64
	Words string
	Level Level
}

// A Rate is the throughput of the cluster until a moment.
type Rate struct {
	Time  time.Time
	Bytes float64 // per second
}

// A Call is one collective, with the time of each rank in it.
type Call struct {
	Key     string // the same as long as the call is shown
	Title   string // "all_reduce #812 (2 × float32, sum)"
	Words   string // the timeline in sentences
	Running bool
	Start   time.Time // of the first rank
	Length  time.Duration
	Spans   []Span // by rank, at most spansMax
	Left    int    // ranks without a span here
	Missing []int  // that ranks in the call wait for, and that have not begun it, at most missingMax

	awaited     []int // ranks that others wait for
	approximate bool  // times of some spans are
}

// A Span is the time of a rank in a call.
type Span struct {
	Rank    int
	Start   time.Duration // after Call.Start
	Length  time.Duration
	Outcome string // as in trace.Operation
}

// Bounds of a View.
const (
	waitsMax   = 32
	callsMax   = 6
	linksMax   = 16
	spansMax   = 128
	missingMax = 16
	ratesMax   = 300
)
