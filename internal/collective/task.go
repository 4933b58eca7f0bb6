// Package collective turns calls of collectives into operations of the engine, and fingerprints of
// calls into text.
//
// For a collective, a caller takes a zero [Task] and calls OnVector, OnBlocks or OnBlocksV, as the descriptor of the collective requires.
// They check the parameters and fill the Task in. Then it passes the Task to [Runner.Begin] and
// [Runner.End]. [Describe] converts a fingerprint for errors and traces.
package collective

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/nexar-go/nexar/internal/callback"
	"github.com/nexar-go/nexar/internal/engine/exec"
	"github.com/nexar-go/nexar/internal/overlap"
	"github.com/nexar-go/nexar/internal/selector"
)

// Errors of parameters.
var (
	ErrRank    = errors.New("invalid rank")
	ErrLength  = errors.New("invalid length")
	ErrOverlap = errors.New("vectors overlap")
	ErrOp      = errors.New("invalid op")
	ErrType    = errors.New("invalid type of elements")
	// ErrTooLarge says that a call would take more memory than a limit allows.
	ErrTooLarge = errors.New("too large")
)

// Values of the op of a fingerprint for calls without a kernel.Op.
const (
	FuncOp        = 255 - iota // a function of the caller
	MinLocOp                   // for a MinLoc
	MaxLocOp                   // for a MaxLoc
	CountsOp                   // nothing is reduced: part of an AllToAllV
	CompressedOp               // nothing is reduced: part of an AllReduceCompressed
	SplitOp                    // nothing is reduced: part of a Split
	ReconfigureOp              // nothing is reduced: part of a Reconfigure
	SyncOp                     // nothing is reduced: part of a Sync
	MeanOp                     // a sum: part of an AllReduceMean
	ValuesOp                   // nothing is reduced: part of a BroadcastValues
	IncludeOp                  // nothing is reduced: part of an Include
	DupOp                      // nothing is reduced: part of a Dup
	SubOp                      // nothing is reduced: part of a Sub
	SplitHostOp                // nothing is reduced: part of a SplitHost
	ExcludeOp                  // not carried out by the engine: an Exclude
	EpochsOp                   // not carried out by the engine: an iteration of Epochs
	LeaveOp                    // not carried out by the engine: a Leave
)

// Opaque is the type, in a fingerprint, of elements that are only moved. Their length is counted in
// bytes.
const Opaque = 255

// A Task is a call of a collective. Its Shape selects a schedule, and the engine carries out its
// Work. Its methods fill it in place and return it, since copying a Task just after its fields were
// written is slow. They set Err if a parameter is wrong.
type Task struct {
	selector.Shape
	exec.Work
	ReadOnly bool            // Data is not written
	Divisor  int             // by which the result is divided, for an average; 0 or 1: not divided
	Empty    bool            // the result combines no vectors, and is the identity of Op
	Guard    *callback.Guard // of a function of the caller
	Before   func()          // called when the task begins
	After    func()          // called when the collective has succeeded
	// Prepare, if not nil, is called with the work before the task begins, and returns its Device. After an error the task does not
	// begin, and the caller may do the same call in another way. A pointer to the work would move every task to the heap.
	Prepare func(w exec.Work) (on any, err error)
	Err     error // of the parameters
}

// Elements is a vector of elements of any type. It is small enough to be passed in registers.
type Elements struct {
	At  *byte // nil if N is 0, or the address is not known yet
	N   int   // number of elements
	Of  Element
	Bad *error // why the type cannot be an element, or nil
}

// An Element is the type of the elements of a vector.
type Element struct {
	Type uint8  // kernel.Type or Opaque
	Size uint32 // in bytes
}

// Err returns why the type cannot be an element, or nil.
func (e Elements) Err() error {
	if e.Bad != nil {
		return *e.Bad
	}
	return nil
}

// memory returns the memory of the elements.
func (e Elements) memory() []byte {
	if e.At == nil {
		return nil
	}
	return unsafe.Slice(e.At, e.N*int(e.Of.Size))
}

// Counted returns the number and the size of the units of count elements in a Task: bytes for opaque
// elements, else the elements.
func (e Element) Counted(count int) (n, size int) {
	if e.Type == Opaque {
		return count * int(e.Size), 1
	}
	return count, int(e.Size)
}

// Name returns the name of the call.
func (t *Task) Name() string { return callName(t.Kind, t.Op, t.Uneven != nil || t.Digest != 0) }

// Flight returns the memory that the task uses.
func (t *Task) Flight() overlap.Flight {
	if t.ReadOnly {
		return overlap.Flight{Name: t.Name(), Read: t.Data}
	}
	return overlap.Flight{Name: t.Name(), Write: t.Data, Read: t.Input}
}

// Require sets Err to err if Err is nil.
func (t *Task) Require(err error) *Task {
	if t.Err == nil {
		t.Err = err
	}
	return t
}

// bytesOf returns the memory of s.
func bytesOf[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// CheckRoot returns an error unless root is a rank.
func (r *Runner) CheckRoot(root int) error {
	if root < 0 || root >= r.Size {
		return r.badRoot(root)
	}
	return nil
}

func (r *Runner) badRoot(root int) error {
	return fmt.Errorf("%w: root %d of %d ranks", ErrRank, root, r.Size)
}

func checkLength(name string, got, want int) error {
	if got != want {
		return fmt.Errorf("%w: %s has %d elements, not %d", ErrLength, name, got, want)
	}
	return nil
}
