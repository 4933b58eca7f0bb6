package wire

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
)

var joinHellos = []JoinMessage{
	JoinHello{Version: Version},
	JoinHello{Version: Version, Proof: bytes.Repeat([]byte{7}, proofBytes)},
}

func TestJoinHello(t *testing.T) {
	for _, m := range joinHellos {
		checkJoinMessage(t, m)
		if n := len(encodeJoin(t, m)); n > joinHeaderLen+HelloBytesMax {
			t.Errorf("%d bytes, a seed reads at most %d", n, HelloBytesMax)
		}
	}
	checkJoinRefused(t, errBadField, JoinHello{Version: Version, Proof: []byte{1}})
	checkJoinRefused(t, errBadField, JoinHello{Version: Version, Proof: make([]byte, proofBytes+1)})
}

// Whatever another version writes behind its number, the number is read.
func TestJoinHelloOfAnotherVersion(t *testing.T) {
	for _, rest := range []string{"", "\x00\x00", "something that this version does not know"} {
		fields := append([]byte{0, Version + 1}, rest...)
		b := append([]byte{byte(typeJoinHello), 0, 0, 0, byte(len(fields))}, fields...)
		_, err := ReadJoin(bytes.NewReader(b), HelloBytesMax)
		v, ok := errors.AsType[*VersionError](err)
		if !ok || v.Theirs != Version+1 || v.Ours != Version || !strings.Contains(err.Error(), fmt.Sprintf("version %d", Version+1)) || !strings.Contains(err.Error(), fmt.Sprintf("version %d", Version)) {
			t.Errorf("error %v, want one that names both versions", err)
		}
	}
}

func FuzzJoinHello(f *testing.F) { fuzzJoin(f, joinHellos...) }
