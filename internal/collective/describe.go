package collective

import (
	"fmt"

	"github.com/nexar-go/nexar/internal/engine"
	"github.com/nexar-go/nexar/internal/kernel"
	"github.com/nexar-go/nexar/internal/plan"
	"github.com/nexar-go/nexar/internal/selector"
	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/trace"
)

// Describe converts a fingerprint to an Operation with the fields Op, Seq, Type, Length, Counts,
// Reduce, Root and Plan. An unknown value is shown as its kind and number, such as "op 200".
func Describe(c wire.Call) trace.Operation {
	kind := plan.Collective(c.Kind)
	d := trace.Operation{Op: nameOf(kind, "collective", c.Kind), Seq: c.Seq, Root: -1}
	length, digest, uneven := c.Elements()
	d.Length = int(length)
	switch {
	case uneven && c.Op == FuncOp:
		d.Counts = digest // of the layout of structs
	case uneven && kind == plan.AllReduce:
		d.Op, d.Counts = BucketsName, digest
	case uneven && kind == plan.Broadcast:
		d.Op, d.Counts = BroadcastBucketsName, digest
	case uneven:
		d.Op, d.Counts = d.Op+"_v", digest
	}
	if c.Type != 0 {
		d.Type = TypeName(c.Type)
	}
	switch c.Op {
	case 0:
	case FuncOp:
		d.Op, d.Reduce = d.Op+"_func", FuncName
		if c.Type == Opaque {
			d.Type = "structs"
		}
	case MinLocOp:
		d.Op = MinLocName
	case MaxLocOp:
		d.Op = MaxLocName
	case CountsOp: // An internal exchange: its parameters mean nothing to the caller.
		d.Op, d.Type, d.Length, d.Counts = AllToAllVName, "", 0, 0
	case SplitOp, DupOp, SubOp, SplitHostOp, SyncOp, ValuesOp, ReconfigureOp, IncludeOp, ExcludeOp, EpochsOp, LeaveOp:
		d.Op, d.Type, d.Length = OpName(c.Op), "", 0
	case MeanOp:
		d.Op = MeanName
	case CompressedOp:
		d.Op, d.Type, d.Length, d.Counts = CompressedName, "", 0, 0
	default:
		d.Reduce = nameOf(kernel.Op(c.Op), "op", c.Op)
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

// OpName returns the name of a call that the op of its fingerprint alone tells.
func OpName(op uint8) string {
	switch op {
	case SplitOp:
		return "split"
	case DupOp:
		return "dup"
	case SubOp:
		return "sub"
	case SplitHostOp:
		return "split_host"
	case SyncOp:
		return SyncName
	case ValuesOp:
		return ValuesName
	case ReconfigureOp:
		return "reconfigure"
	case IncludeOp:
		return "include"
	case ExcludeOp:
		return "exclude"
	case EpochsOp:
		return "epochs"
	case LeaveOp:
		return "leave"
	}
	return ""
}

// Names of calls that differ from their kind.
const (
	AllToAllVName        = "all_to_all_v"
	BroadcastBucketsName = "broadcast_buckets"
	BucketsName          = "all_reduce_buckets"
	CompressedName       = "all_reduce_compressed"
	MaxLocName           = "max_loc"
	MeanName             = "all_reduce_mean"
	MinLocName           = "min_loc"
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

// Operations converts traces of the engine to those of the API.
func Operations(traces []engine.Trace) []trace.Operation {
	list := make([]trace.Operation, len(traces))
	for i, t := range traces {
		o := &list[i]
		*o = t.Operation
		if o.Seq == 0 {
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
