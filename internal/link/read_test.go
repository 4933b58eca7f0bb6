package link

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
	"github.com/nexar-go/nexar/transport"
)

// inject sends bytes on a lane to a link with one grant of 100 bytes, and returns the reason of its
// end. The peer closes the connection when everything was read.
func inject(t testing.TB, lane wire.Lane, b []byte) error {
	t.Helper()
	ca, cb := conns(t)
	h := newHandler()
	l := start(t, ca, h)
	s := &Sink{Dst: make([]byte, 100), Owner: ignore{}}
	l.Grant(s)
	write(open(t, cb, lane), b)
	err := h.wait(t)
	cb.Close()
	l.Abort()
	h.quiet(t)
	return err
}

// write writes b and closes the pipe, which a peer never does.
func write(s transport.Sender, b []byte) {
	s.Write(b)
	s.Close()
}

func frame(add func(b []byte) []byte, payload int) []byte {
	return append(add(nil), make([]byte, payload)...)
}

func TestProtocolErrors(t *testing.T) {
	step := func(n, payload int) []byte {
		s := wire.Step{Length: n}
		return frame(s.AppendStep, payload)
	}
	message := func(n int) []byte {
		m := wire.Message{Length: n}
		return frame(m.Append, n)
	}
	segment := func(grant uint64, n, payload int) []byte {
		s := wire.Segment{Grant: grant, Length: n}
		return frame(s.Append, payload)
	}
	ping := wire.Ping{}
	credit := wire.Credit{Bytes: 1}
	for name, test := range map[string]struct {
		lane wire.Lane
		b    []byte
		want string
	}{
		"an unknown frame":              {wire.Control, []byte{200}, "unknown frame type 200"},
		"frame 0":                       {wire.Data, []byte{0}, "unknown frame type 0"},
		"garbage":                       {wire.Bulk, []byte("GET / HTTP/1.1\r\n\r\n"), "unknown frame type 71"},
		"data on the control lane":      {wire.Control, step(0, 0), "frame type 3 on the control lane"},
		"control on the data lane":      {wire.Data, ping.Append(nil, wire.TypePing), "frame type 9 on the data lane"},
		"a segment out of order":        {wire.Bulk, frame((&wire.Segment{Grant: 1, Offset: 1, Length: 1}).Append, 1), "at offset 1, want 0"},
		"a segment on the data lane":    {wire.Data, segment(1, 0, 0), "on the data lane"},
		"a step on the bulk lane":       {wire.Bulk, step(0, 0), "on the bulk lane"},
		"data without a grant":          {wire.Bulk, segment(2, 1, 1), "data for grant 2, and the last one made is 1"},
		"data for grant 0":              {wire.Bulk, segment(0, 1, 1), "grant 0"},
		"too much data for a grant":     {wire.Bulk, segment(1, 101, 101), "101 bytes for grant 1, which has room for 100"},
		"too much in two pieces":        {wire.Bulk, append(segment(1, 60, 60), frame((&wire.Segment{Grant: 1, Offset: 60, Length: 60}).Append, 60)...), "has room for 40"},
		"a segment that is too long":    {wire.Bulk, segment(1, wire.SegmentMax+1, 0), "too long"},
		"a payload that is too long":    {wire.Data, step(wire.PayloadMax+1, 0), "too long"},
		"a frame cut off":               {wire.Control, ping.Append(nil, wire.TypePing)[:5], io.ErrUnexpectedEOF.Error()},
		"a payload cut off":             {wire.Data, step(100, 50), io.ErrUnexpectedEOF.Error()},
		"a long payload cut off":        {wire.Data, step(10000, 5000), io.ErrUnexpectedEOF.Error()},
		"a segment's head cut off":      {wire.Bulk, segment(1, 100, 0)[:4], io.ErrUnexpectedEOF.Error()},
		"a segment cut off":             {wire.Bulk, segment(1, 100, 50), "EOF"},
		"a lane without a goodbye":      {wire.Data, nil, "data lane: EOF"},
		"more credit than was taken":    {wire.Control, credit.Append(nil), "more credit"},
		"more steps than credit":        {wire.Data, bytes.Repeat(step(wire.PayloadMax, wire.PayloadMax), 17), "credit"},
		"more messages than credit":     {wire.Data, bytes.Repeat(message(0), 1+creditBytes/frameCharge), "credit"},
		"a goodbye, and then the end":   {wire.Control, (&wire.Bye{Data: 1}).Append(nil), "EOF"},
		"a revocation without a cause":  {wire.Control, make([]byte, 0), "EOF"},
		"frames that were not sent":     {wire.Control, (&wire.Ack{Control: 1}).Append(nil), "the peer acknowledges 1 bytes, and 0 were sent"},
		"data that was not sent":        {wire.Data, (&wire.Ack{Data: 1 << 40}).Append(nil), "the peer acknowledges 1099511627776 bytes, and 0 were sent"},
		"idle, with too much data":      {wire.Control, (&wire.Idle{Data: 1}).Append(nil), "the peer acknowledges 1 bytes, and 0 were sent"},
		"a grant that was not used":     {wire.Control, (&wire.Finished{Grant: 1}).Append(nil), "the peer has finished grant 1, and the last one used is 0"},
		"the end of grant 0":            {wire.Data, (&wire.Finished{}).Append(nil), "the peer has finished grant 0"},
		"an unexpected acknowledgement": {wire.Control, []byte{byte(wire.TypeByeAck)}, "was not sent"},
	} {
		t.Run(name, func(t *testing.T) {
			// Steps and messages that are not consumed stay charged.
			err := injectUnread(t, test.lane, test.b)
			if !strings.Contains(err.Error(), "link: protocol error") || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %q, want a protocol error with %q", err, test.want)
			}
		})
	}
}

func injectUnread(t testing.TB, lane wire.Lane, b []byte) error {
	t.Helper()
	ca, cb := conns(t)
	h := newHandler()
	h.step = func(wire.Step, []byte) {}
	h.message = func(wire.Message, []byte) {}
	l := start(t, ca, h)
	l.Grant(&Sink{Dst: make([]byte, 100), Owner: ignore{}})
	write(open(t, cb, lane), b)
	err := h.wait(t)
	l.Abort()
	h.quiet(t)
	return err
}

func TestLanesMustBeNamed(t *testing.T) {
	preamble := func(l wire.Lane) []byte { return wire.Preamble{Lane: l}.Append(nil) }
	other := preamble(wire.Control)
	other[5]++
	for name, test := range map[string]struct {
		pipes [][]byte
		want  string
	}{
		"another version":   {[][]byte{other}, "version"},
		"two control lanes": {[][]byte{preamble(wire.Control), preamble(wire.Control)}, "a second control lane"},
		"an unknown lane":   {[][]byte{preamble(wire.Relay + 1)}, "unknown lane"},
		"a relay lane":      {[][]byte{preamble(wire.Relay)}, "a relay lane, but this node relays no frames on this link"},
		"not nexar":         {[][]byte{[]byte("SSH-2.0-OpenSSH")}, "not a nexar pipe"},
		"half a name":       {[][]byte{preamble(wire.Data)[:3]}, "EOF"},
		"more than enough":  {[][]byte{nil, nil, nil, nil}, "more than 4 pipes"},
	} {
		t.Run(name, func(t *testing.T) {
			ca, cb := conns(t)
			h := newHandler()
			l := start(t, ca, h)
			for _, b := range test.pipes {
				s, err := cb.OpenPipe(t.Context())
				if err != nil {
					break
				}
				s.Write(b)
				if len(b) > 0 && len(b) < wire.PreambleSize {
					s.Close()
				}
			}
			if err := h.wait(t); !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %q, want %q", err, test.want)
			}
			l.Abort()
		})
	}
}

// TestFramesInAnyPieces cuts the same frames at every byte.
func TestFramesInAnyPieces(t *testing.T) {
	var b []byte
	for _, n := range []int{0, 1, 5, 100, readBuffer, readBuffer + 1, 3 * readBuffer} {
		s := wire.Step{Length: n, Index: uint32(n)}
		b = s.AppendStep(b)
		b = append(b, bytes.Repeat([]byte{byte(n)}, n)...)
	}
	y := wire.Bye{Data: 7}
	b = y.Append(b)
	for _, size := range []int{1, 2, 3, 7, 47, 48, 49, readBuffer, len(b)} {
		r := &reader{pipe: &pieces{b: b, size: size}}
		for _, n := range []int{0, 1, 5, 100, readBuffer, readBuffer + 1, 3 * readBuffer} {
			typ, head, err := r.frame()
			if err != nil || typ != wire.TypeStep {
				t.Fatalf("pieces of %d: %v, %v", size, typ, err)
			}
			s, err := wire.ParseStep(head)
			if err != nil || s.Length != n {
				t.Fatalf("pieces of %d: %d bytes, %v, want %d", size, s.Length, err, n)
			}
			r.expect(n, func(p []byte) {
				if len(p) != n || bytes.Count(p, []byte{byte(n)}) != n {
					t.Errorf("pieces of %d: a wrong payload of %d bytes", size, n)
				}
			})
			if err := r.payload(); err != nil {
				t.Fatal(err)
			}
		}
		if typ, _, err := r.frame(); typ != wire.TypeBye || err != nil {
			t.Errorf("pieces of %d: %v, %v at the end", size, typ, err)
		}
		if _, _, err := r.frame(); err != io.EOF {
			t.Errorf("pieces of %d: %v after the end", size, err)
		}
	}
}

// pieces is a pipe that returns its bytes in pieces, and the last one together with io.EOF.
type pieces struct {
	transport.Receiver
	b    []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.b) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.b[:min(len(p.b), p.size)])
	if p.b = p.b[n:]; len(p.b) == 0 {
		return n, io.EOF
	}
	return n, nil
}

// FuzzReadFrames feeds bytes into every lane of a link, which must end with an error, without a panic
// or a leak.
func FuzzReadFrames(f *testing.F) {
	s := wire.Step{Length: 3}
	m := wire.Message{Length: 3}
	g := wire.Segment{Grant: 1, Length: 8}
	r := wire.Revoke{Cause: wire.CauseFailed}
	y := wire.Bye{}
	p := wire.Ping{}
	f.Add(uint8(1), append(append(s.AppendStep(nil), 1, 2, 3), m.Append(nil)...))
	f.Add(uint8(2), append(append(g.Append(nil), make([]byte, 8)...), g.Append(nil)...))
	f.Add(uint8(0), r.Append(p.Append(nil, wire.TypePing), "text"))
	f.Add(uint8(0), y.Append(y.Append(nil)))
	f.Add(uint8(0), []byte{byte(wire.TypeCredit), 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, lane uint8, b []byte) {
		ca, cb := conns(t)
		h := newHandler()
		l := start(t, ca, h)
		dst := make([]byte, 64)
		l.Grant(&Sink{Dst: dst[8:48], A: make([]byte, 40), Elem: 8, Owner: ignore{}, Reduce: func(d, a, b []byte) { copy(d, b) }})
		at := wire.Lane(lane % uint8(wire.Lanes))
		write(open(t, cb, at), b)
		if at != wire.Control {
			// A lane may end by a goodbye, and the link may have ended already.
			if s, err := cb.OpenPipe(t.Context()); err == nil {
				write(s, append(wire.Preamble{Lane: wire.Control}.Append(nil), 0))
			}
		}
		err := h.wait(t)
		if errors.Is(err, transport.ErrClosed) {
			t.Errorf("got %v", err)
		}
		l.Abort()
		h.quiet(t)
		if !bytes.Equal(dst[:8], make([]byte, 8)) || !bytes.Equal(dst[48:], make([]byte, 16)) {
			t.Error("memory outside the sink was written")
		}
	})
}

// TestSilentPipe: a pipe without a preamble does not delay other lanes, and ends the link after
// deadline.Handshake.
func TestSilentPipe(t *testing.T) {
	ca, cb := conns(t)
	h := newHandler()
	l := start(t, ca, h)
	if _, err := cb.OpenPipe(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := open(t, cb, wire.Control)
	p := wire.Ping{}
	s.Write(p.Append(nil, wire.TypePing))
	for end := time.Now().Add(time.Minute); l.Heard() == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("a lane waits for a pipe without a preamble")
		}
	}
}
