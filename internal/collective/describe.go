package collective

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/recorder"
	"github.com/nexar-go/nexar/internal/selector"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
)

// Describe converts a fingerprint to an Operation with the fields Op, Seq, Type, Length, Counts,
// Reduce, Root and Plan. An unknown value is shown as its kind and number, such as "op 200".
func Describe(c wire.Call) trace.Operation {
	kind := plan.Collective(c.Kind)
	length, digest, uneven := c.Elements()
	d := trace.Operation{Op: callName(kind, c.Op, uneven), Seq: c.Seq, Root: -1, Length: int(length), Counts: digest}
	if c.Type != 0 {
		d.Type = TypeName(c.Type)
	}
	switch other := others[c.Op]; {
	case c.Op == FuncOp:
		d.Reduce = FuncName
		if c.Type == Opaque {
			d.Type = "structs"
		}
	case other.name == "" && c.Op != 0:
		d.Reduce = nameOf(kernel.Op(c.Op), "op", c.Op)
	case other.internal:
		d.Type, d.Length = "", 0
	}
	if c.Op == CountsOp || c.Op == CompressedOp {
		d.Counts = 0
	}
	if kind.Rooted() {
		d.Root = int(c.Root)
	}
	if c.Kind == 0 { // An Exclude, Epochs or Leave has no plan.
		return d
	}
	d.Plan = selector.PlanName(kind, int(c.Plan), int(c.Channels))
	return d
}

// others are the calls that the op of a fingerprint tells. The parameters of an internal exchange mean nothing to the caller.
var others = [256]struct {
	name     string
	internal bool
}{
	MinLocOp: {"min_loc", false}, MaxLocOp: {"max_loc", false}, MeanOp: {MeanName, false},
	CountsOp: {AllToAllVName, true}, CompressedOp: {CompressedName, true}, SyncOp: {SyncName, true}, ValuesOp: {ValuesName, true},
	SplitOp: {"split", true}, DupOp: {"dup", true}, SubOp: {"sub", true}, SplitHostOp: {"split_host", true},
	ReconfigureOp: {"reconfigure", true}, IncludeOp: {"include", true}, ExcludeOp: {"exclude", true},
	EpochsOp: {"epochs", true}, LeaveOp: {"leave", true},
}

// OpName returns the name of a call that the op of its fingerprint alone tells.
func OpName(op uint8) string { return others[op].name }

// callName returns the name of a call. uneven says that the fingerprint has a digest.
func callName(kind plan.Collective, op uint8, uneven bool) string {
	switch {
	case others[op].name != "":
		return others[op].name
	case op == FuncOp:
		return nameOf(kind, "collective", uint8(kind)) + "_func"
	case uneven && kind == plan.AllReduce:
		return BucketsName
	case uneven && kind == plan.Broadcast:
		return BroadcastBucketsName
	case uneven:
		return nameOf(kind, "collective", uint8(kind)) + "_v"
	}
	return nameOf(kind, "collective", uint8(kind))
}

// Names of calls that differ from their kind.
const (
	AllToAllVName        = "all_to_all_v"
	BroadcastBucketsName = "broadcast_buckets"
	BucketsName          = "all_reduce_buckets"
	CompressedName       = "all_reduce_compressed"
	MeanName             = "all_reduce_mean"
	SyncName             = "sync"
	ValuesName           = "broadcast_values"
)

// FuncName is trace.Operation.Reduce for a reduction by a function of the caller.
const FuncName = "a function"

// TypeName returns the name of the type of elements.
func TypeName(typ uint8) string {
	if typ == Opaque {
		return "bytes of structs"
	}
	return nameOf(kernel.Type(typ), "type", typ)
}

// nameOf returns the name of a value or, if it has none, "WHAT NUMBER".
func nameOf(value fmt.Stringer, what string, number uint8) string {
	if name := value.String(); name != "unknown" {
		return name
	}
	return fmt.Sprintf("%s %d", what, number)
}

// Counters converts counters of the engine to those of the API, those with the most calls first.
func Counters(counters map[engine.CallKind]*engine.Counter) (list []trace.Counter) {
	type name struct {
		op    string
		ranks int
	}
	named := make(map[name]*trace.Counter)
	for _, k := range counters {
		kind := plan.Collective(k.Kind)
		n := name{callName(kind, k.Op, k.IsUneven), k.Ranks}
		if k.Kind == 0 {
			n.op = engine.MessageName(k.Op)
		}
		if k.Channels > 0 {
			k.Sum.Plan = selector.PlanName(kind, int(k.Plan), int(k.Channels))
		}
		if named[n] == nil {
			named[n] = &trace.Counter{Op: n.op, Ranks: n.ranks}
		}
		recorder.Merge(named[n], &k.Sum)
	}
	for _, c := range named {
		list = append(list, *c)
	}
	slices.SortFunc(list, func(a, b trace.Counter) int {
		return cmp.Or(-cmp.Compare(a.Calls, b.Calls), cmp.Compare(a.Op, b.Op), cmp.Compare(a.Ranks, b.Ranks))
	})
	return list
}

// Operations converts traces of the engine to those of the API.
func Operations(traces []engine.Trace) []trace.Operation {
	list := make([]trace.Operation, len(traces))
	for i, t := range traces {
		o := &list[i]
		*o = t.Operation
		if o.Op != "" { // of a message
			if t.Call.Count > 0 {
				o.Type, o.Length = TypeName(t.Call.Type), int(t.Call.Count)/max(1, kernel.Type(t.Call.Type).Size())
			}
			continue
		}
		d := Describe(t.Call)
		o.Op, o.Type, o.Length, o.Counts, o.Reduce, o.Plan = d.Op, d.Type, d.Length, d.Counts, d.Reduce, d.Plan
	}
	return list
}
