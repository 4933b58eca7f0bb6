package lane

import (
	"strings"
	"testing"

	"github.com/nexar-go/nexar/internal/wire"
)

// Numbers and segments that no correct peer sends are named.
func TestHostileNumbers(t *testing.T) {
	var o Out
	o.Commit(append(o.Buffer(4), 1, 2, 3, 4))
	expect(t, o.Ack(1), "acknowledges 1 bytes, and 0 were sent")
	expect(t, o.Resume(1), "opens a connection at byte 1, and 0 were sent")
	o.Next()
	must(t, o.Ack(3)) // The write may have sent them.
	expect(t, o.Ack(5), "acknowledges 5 bytes, and 4 were sent")
	expect(t, o.Wrote(2), "acknowledges 3 bytes, and 2 were sent")
	expect(t, o.Resume(2), "opens a connection at byte 2, and it has acknowledged 3")

	var g Grants
	x := new(Grant)
	g.Add(x, 10)
	g.Add(new(Grant), 10)
	for want, s := range map[string][3]int{
		"data for grant 0, and the last one made is 2": {0, 0, 1},
		"data for grant 3, and the last one made is 2": {3, 0, 1},
		"data for grant 1 at offset 2, want 0":         {1, 2, 1},
		"11 bytes for grant 1, which has room for 10":  {1, 0, 11},
		"-1 bytes for grant 1, which has room for 10":  {1, 0, -1},
	} {
		_, err := g.Segment(uint64(s[0]), uint64(s[1]), s[2])
		expect(t, err, want)
	}

	var r Transfers
	must(t, r.Start(new(Transfer), 3, 10))
	expect(t, r.Start(new(Transfer), 3, 10), "announces grant 3 again")
	expect(t, r.Start(new(Transfer), 0, 10), "announces grant 0 again")
	for want, o := range map[string]wire.Resume{
		"the peer has 1 bytes for grant 3, and 0 were sent": {Last: 3, Grants: []wire.Progress{{Grant: 3, Got: 1}}},
		"with grant 4 after grant 0, and 3 as the last":     {Last: 3, Grants: []wire.Progress{{Grant: 4}}},
		"with grant 2 after grant 2, and 3 as the last":     {Last: 3, Grants: []wire.Progress{{Grant: 2}, {Grant: 2}}},
	} {
		delivered, err := r.Resume(&o)
		if expect(t, err, want); len(delivered) > 0 || len(r.All()) != 1 {
			t.Errorf("%s: the transfer is delivered", want)
		}
	}
}

func expect(t *testing.T, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
}

// An opening seeks a transfer forward and back, delivers one that is not listed, and leaves one whose grant was made later.
func TestResumeTransfers(t *testing.T) {
	var s Transfers
	list := make([]Transfer, 5)
	for i := range list {
		must(t, s.Start(&list[i], uint64(i+1), 10))
		_, n := list[i].Next(8)
		if i != 3 {
			list[i].Wrote(n)
		}
	}
	delivered, err := s.Resume(&wire.Resume{Last: 4, Grants: []wire.Progress{{Grant: 1, Got: 2}, {Grant: 3, Got: 8}, {Grant: 4, Got: 6}}})
	must(t, err)
	if len(delivered) != 1 || delivered[0] != &list[1] || list[0].Sent() != 2 || list[2].Sent() != 8 || list[3].Sent() != 6 || list[4].Sent() != 0 || len(s.All()) != 4 {
		t.Errorf("%d delivered; offsets %d %d %d %d", len(delivered), list[0].Sent(), list[2].Sent(), list[3].Sent(), list[4].Sent())
	}
	finished := func(grant uint64) *Transfer {
		got, err := s.Finished(grant)
		must(t, err)
		return got
	}
	if finished(1) != &list[0] || finished(1) != nil || s.Recall(&list[0]) || !s.Recall(&list[2]) || finished(3) != nil {
		t.Error("a finished or recalled transfer was still there")
	}
	for _, grant := range []uint64{0, 6} {
		if _, err := s.Finished(grant); err == nil {
			t.Errorf("the peer has finished grant %d, and the last one used is 5: want an error", grant)
		}
	}
}
