package wire

import "testing"

var joinAdmitteds = []JoinMessage{
	JoinAdmitted{Certificate: []byte{1}, CA: []byte{2, 3}, ID: id16(4), Observed: "10.0.0.1:7000", World: 64, Lasting: true, Seeds: []string{"10.0.0.1:7000", "seed.example:7000"}},
	JoinAdmitted{Certificate: make([]byte, 600), CA: make([]byte, 500), World: 1},
}

func TestJoinAdmitted(t *testing.T) {
	for _, m := range joinAdmitteds {
		checkJoinMessage(t, m)
	}
	checkJoinRefused(t, errTooLong, JoinAdmitted{Certificate: make([]byte, certificateBytesMax+1)},
		JoinAdmitted{CA: make([]byte, certificateBytesMax+1)})
}

func FuzzJoinAdmitted(f *testing.F) { fuzzJoin(f, joinAdmitteds...) }
