package wire

import (
	"bytes"
	"fmt"
)

// ViewMessageMax is the maximum length of a message about views between nodes.
const ViewMessageMax = 64 << 10

// A View carries a message about views between two nodes. Length bytes follow: a [JoinDifference],
// a [JoinConfirm] or a [JoinBehind] in the encoding of [AppendJoin].
type View struct {
	Length int `wire:"view"`
}

// Append appends v and the message to b. The message has at most ViewMessageMax bytes.
func (v View) Append(b, message []byte) []byte {
	v.Length = len(message)
	return append(appendFrame(b, TypeView, &v), message...)
}

// DecodeViewMessage decodes the message of a View frame. Byte slices in the result alias b.
func DecodeViewMessage(b []byte) (JoinMessage, error) {
	r := bytes.NewReader(b)
	m, err := ReadJoin(r, ViewMessageMax)
	if err != nil {
		return nil, err
	}
	if r.Len() > 0 {
		return nil, errTrailing
	}
	switch m.(type) {
	case JoinDifference, JoinConfirm, JoinBehind:
		return m, nil
	}
	return nil, fmt.Errorf("%w: a node sent a %T", errUnknownType, m)
}
