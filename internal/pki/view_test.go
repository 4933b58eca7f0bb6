package pki

import (
	"bytes"
	"testing"

	"github.com/nexar-go/nexar/internal/membership"
)

// TestSignView: nodes verify the signature of their CA over the epoch and the hash of a view, and
// refuse every other one. A seed with a copy of the authority signs alike.
func TestSignView(t *testing.T) {
	ours, other := newAuthority(t), newAuthority(t)
	node := newIdentity(t, ours)
	h := membership.Hash{1, 2, 3}
	text, err := ours.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	replica, err := ParseAuthority(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []*Authority{ours, replica} {
		signature, err := a.SignView(7, h)
		if err != nil {
			t.Fatal(err)
		}
		if err := node.CheckView(7, h, signature); err != nil {
			t.Errorf("a signature of the CA is refused: %v", err)
		}
		changed := bytes.Clone(signature)
		changed[len(changed)-1] ^= 1
		for name, err := range map[string]error{
			"for another epoch":   node.CheckView(8, h, signature),
			"for another hash":    node.CheckView(7, membership.Hash{1, 2, 4}, signature),
			"that was changed":    node.CheckView(7, h, changed),
			"without a signature": node.CheckView(7, h, nil),
		} {
			if err == nil {
				t.Errorf("a view %s is accepted", name)
			}
		}
	}
	signature, err := other.SignView(7, h)
	if err != nil {
		t.Fatal(err)
	}
	if node.CheckView(7, h, signature) == nil {
		t.Error("a view of another cluster is accepted")
	}
}
