package trace

import (
	"encoding/json"
	"fmt"
	"time"
)

// operationFields is an Operation without its methods.
type operationFields Operation

// operationJSON is the JSON form of an Operation.
type operationJSON struct {
	operationFields
	Root    *int    `json:"root,omitempty"`
	Peer    *int    `json:"peer,omitempty"`
	Seconds float64 `json:"seconds"`
}

// MarshalJSON encodes the operation with its duration in seconds. Root and Peer are
// omitted if they are -1.
func (o Operation) MarshalJSON() ([]byte, error) {
	f := operationJSON{operationFields: operationFields(o), Seconds: o.Duration.Seconds()}
	if o.Root >= 0 {
		f.Root = &o.Root
	}
	if o.Peer >= 0 {
		f.Peer = &o.Peer
	}
	return json.Marshal(f)
}

// UnmarshalJSON decodes the form of [Operation.MarshalJSON].
func (o *Operation) UnmarshalJSON(b []byte) error {
	var f operationJSON
	if err := json.Unmarshal(b, &f); err != nil {
		return err
	}
	*o = Operation(f.operationFields)
	o.Root, o.Peer = -1, -1
	if f.Root != nil {
		o.Root = *f.Root
	}
	if f.Peer != nil {
		o.Peer = *f.Peer
	}
	if f.Seconds < 0 || f.Seconds > secondsMax {
		return fmt.Errorf("trace: duration of an operation is %g s, want 0 to %d s", f.Seconds, int64(secondsMax))
	}
	o.Duration = time.Duration(f.Seconds * float64(time.Second)).Round(time.Nanosecond)
	return nil
}

// secondsMax bounds the duration of an operation in JSON, so that it fits a
// time.Duration.
const secondsMax = 1 << 32
