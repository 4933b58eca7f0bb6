package wire

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/iotest"

	"github.com/nexar-go/nexar/internal/membership"
)

// id16 returns an ID.
func id16(b byte) [16]byte { return [16]byte{b, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, b} }

func encodeJoin(t testing.TB, m JoinMessage) []byte {
	t.Helper()
	b, err := AppendJoin(nil, m)
	if err != nil {
		t.Fatalf("%T: %v", m, err)
	}
	return b
}

// checkJoinMessage encodes m and decodes it, whole, truncated and with a trailing byte.
func checkJoinMessage(t *testing.T, m JoinMessage) {
	t.Helper()
	b := encodeJoin(t, m)
	r := bytes.NewReader(append(bytes.Clone(b), "next"...))
	got, err := ReadJoin(iotest.OneByteReader(r), JoinBytesMax)
	if err != nil || !reflect.DeepEqual(got, m) {
		t.Fatalf("got %#v (%v), want %#v", got, err, m)
	}
	if r.Len() != len("next") {
		t.Errorf("%T: read %d bytes beyond its end", m, len("next")-r.Len())
	}
	for n := range b {
		_, err := ReadJoin(bytes.NewReader(b[:n]), JoinBytesMax)
		if want := io.ErrUnexpectedEOF; n > 0 && err != want || n == 0 && err != io.EOF {
			t.Errorf("%T cut off after %d of %d bytes: error %v, want %v", m, n, len(b), err, want)
		}
	}
	// Truncated fields in a whole message.
	fields := b[joinHeaderLen:]
	for n := range fields {
		if got, err := parseJoin(joinType(m), fields[:n]); err == nil {
			t.Errorf("%T with %d of %d bytes is read as %#v", m, n, len(fields), got)
		}
	}
	if _, err := parseJoin(joinType(m), append(bytes.Clone(fields), 0)); !errors.Is(err, errTrailing) {
		t.Errorf("%T with a byte too many: error %v", m, err)
	}
	if len(fields) > 0 {
		if _, err := ReadJoin(bytes.NewReader(b), len(fields)-1); !errors.Is(err, errTooLong) {
			t.Errorf("%T above the limit: error %v", m, err)
		}
	}
}

// checkLongest encodes and decodes a message that is too long for checkJoinMessage.
func checkLongest(t *testing.T, m JoinMessage) {
	t.Helper()
	b := encodeJoin(t, m)
	got, err := ReadJoin(bytes.NewReader(b), JoinBytesMax)
	if err != nil || !reflect.DeepEqual(got, m) {
		t.Fatalf("%T of %d bytes: got another one (%v)", m, len(b), err)
	}
}

// checkJoinRefused requires that the encoder refuses messages with an error.
func checkJoinRefused(t *testing.T, want error, messages ...JoinMessage) {
	t.Helper()
	for _, m := range messages {
		b, err := AppendJoin([]byte("kept"), m)
		if !errors.Is(err, want) || string(b) != "kept" {
			t.Errorf("%#v: error %v, want %v", m, err, want)
		}
	}
}

// fuzzJoin looks for fields that make the decoder of a message panic, or that
// it accepts although no encoder writes them.
func fuzzJoin(f *testing.F, examples ...JoinMessage) {
	typ := joinType(examples[0])
	for _, m := range examples {
		f.Add(encodeJoin(f, m)[joinHeaderLen:])
	}
	f.Fuzz(func(t *testing.T, fields []byte) {
		m, err := parseJoin(typ, fields)
		if err != nil {
			return
		}
		if got := encodeJoin(t, m)[joinHeaderLen:]; !bytes.Equal(got, fields) {
			t.Errorf("%#v\nread from %x\nwritten as %x", m, fields, got)
		}
	})
}

func FuzzReadJoin(f *testing.F) {
	f.Add(encodeJoin(f, JoinPing{Seq: 7}))
	f.Add(encodeJoin(f, JoinHello{Version: Version}))
	f.Add([]byte{joinType(JoinView{}), 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		m, err := ReadJoin(r, JoinBytesMax)
		if err != nil {
			return
		}
		if got, read := encodeJoin(t, m), b[:len(b)-r.Len()]; !bytes.Equal(got, read) {
			t.Errorf("%#v\nread from %x\nwritten as %x", m, read, got)
		}
	})
}

// The decoder checks a length before it allocates.
func TestReadJoinDoesNotTrustLengths(t *testing.T) {
	header := []byte{joinType(JoinFailed{}), 0x7f, 0xff, 0xff, 0xff}
	allocs := testing.AllocsPerRun(10, func() {
		if _, err := ReadJoin(bytes.NewReader(header), 1<<40); !errors.Is(err, errTooLong) {
			t.Errorf("error %v, want %v", err, errTooLong)
		}
	})
	if allocs > 20 {
		t.Errorf("%v allocations to refuse a length", allocs)
	}
}

func TestReadJoinUnknownTypes(t *testing.T) {
	for _, typ := range []byte{0, byte(len(joinMessages)), 'G', 0xff} {
		if _, err := ReadJoin(bytes.NewReader([]byte{typ, 0, 0, 0, 0}), 10); !errors.Is(err, errUnknownType) {
			t.Errorf("type %d: error %v, want %v", typ, err, errUnknownType)
		}
	}
}

// Texts come from peers, and appear in logs and on terminals.
func TestTextsAreCleaned(t *testing.T) {
	m := JoinFailed{Text: "a\x1b[2Jb\nc\x00d\xffe"}
	got, err := ReadJoin(bytes.NewReader(encodeJoin(t, m)), JoinBytesMax)
	if want := (JoinFailed{Text: "a [2Jb c d e"}); err != nil || !reflect.DeepEqual(got, JoinMessage(want)) {
		t.Errorf("got %+v (%v), want %+v", got, err, want)
	}
	for _, evil := range []string{"\x1b[2J", "\n", "\xff"} {
		if _, err := parseJoin(joinType(JoinFailed{}), append([]byte{0, byte(len(evil))}, evil...)); !errors.Is(err, errNotText) {
			t.Errorf("text %q: error %v, want %v", evil, err, errNotText)
		}
	}
}

func TestLongTextsAreCutOff(t *testing.T) {
	m := JoinFailed{Text: "x" + strings.Repeat("é", textBytesMax)}
	got, err := ReadJoin(bytes.NewReader(encodeJoin(t, m)), JoinBytesMax)
	if want := (JoinFailed{Text: m.Text[:textBytesMax-1]}); err != nil || !reflect.DeepEqual(got, JoinMessage(want)) {
		t.Errorf("got %d bytes (%v), want whole characters, %d bytes", len(got.(JoinFailed).Text), err, len(want.Text))
	}
}

// Several goroutines may encode one message, so encoding must not change it.
func TestAppendJoinOnlyReads(t *testing.T) {
	node := membership.Node{ID: id16(1), Addrs: []string{"10.0.0.1:7000"}, Host: "a", Name: "a:1"}
	m := JoinView{Epoch: 1, Nodes: []membership.Node{node}}
	var encoders sync.WaitGroup
	for range 4 {
		encoders.Go(func() { AppendJoin(nil, m) })
	}
	encoders.Wait()
	if want := (JoinView{Epoch: 1, Nodes: []membership.Node{node}}); !reflect.DeepEqual(m, want) {
		t.Errorf("encoding has changed the message to %+v", m)
	}
}
