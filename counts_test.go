package nexar_test

import (
	"errors"
	"testing"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// TestNegativeCountsToItself: a rank that tells a negative number of elements for itself is named, on all ranks, as for others.
func TestNegativeCountsToItself(t *testing.T) {
	comms := worldtest.Local(t, 2, nexar.Config{})
	for _, count := range []int{-1, -2, -1 << 62} {
		all := []int{1, 1, 1, 1, 1, count, 1, count} // rank 1 expects and sends itself so many
		err := nexar.CheckCounts(comms[0], all)
		if e, ok := errors.AsType[*nexar.CountsError](err); count == -1 && err == nil || count != -1 && (!ok || e.From != 1 || e.To != 1 || e.Sent != count) {
			t.Errorf("%d elements: error %v, want one of rank 1", count, err)
		}
	}
}
