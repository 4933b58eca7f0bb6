package shm

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/transport"
)

func hellos() []hello {
	long := strings.Repeat("n", nameBytesMax)
	return []hello{
		{kind: kindHello, cluster: "c", from: "a", to: "b"},
		{kind: kindWelcome, areas: 1 << 31, area: 1 << 40, cluster: "", from: long, to: long},
		{kind: kindRefusal, code: refusedIdentity, text: "you are not you"},
		{kind: kindRefusal, code: refusedOther},
	}
}

func TestHello(t *testing.T) {
	for _, h := range hellos() {
		b := h.append(nil)
		if got, err := parseHello(b); err != nil || got != h {
			t.Errorf("parse(append(%v)) = %v, %v", h, got, err)
		}
		for n := range b {
			if _, err := parseHello(b[:n]); err == nil {
				t.Errorf("%d of %d bytes of %v are accepted", n, len(b), h)
			}
		}
		if _, err := parseHello(append(b, 0)); err == nil {
			t.Errorf("%v is accepted with a byte behind it", h)
		}
		if len(b) > messageBytesMax {
			t.Errorf("%v takes %d bytes, more than a message has room for", h, len(b))
		}
	}
}

func TestHelloOfAnotherVersion(t *testing.T) {
	b := hellos()[0].append(nil)
	b[len(magic)]++
	if _, err := parseHello(b); err == nil || !strings.Contains(err.Error(), fmt.Sprint("version ", 256+version)) {
		t.Errorf("got %v, want an error that names the version", err)
	}
	b = hellos()[2].append(nil)
	b[len(magic)]++
	if _, err := parseHello(b); err != nil {
		t.Errorf("a refusal of another version: %v", err)
	}
}

func TestHelloCheck(t *testing.T) {
	good := hello{kind: kindWelcome, cluster: "c", from: "b", to: "a"}
	for name, test := range map[string]struct {
		change   func(h *hello)
		asked    string
		identity bool
		want     string
	}{
		"good":            {func(h *hello) {}, "b", false, ""},
		"not requested":   {func(h *hello) {}, "", false, ""},
		"another node":    {func(h *hello) { h.from = "x" }, "b", true, `"x"`},
		"no node":         {func(h *hello) { h.from = "" }, "", true, `""`},
		"for another":     {func(h *hello) { h.to = "x" }, "b", true, `"x"`},
		"another cluster": {func(h *hello) { h.cluster = "d" }, "b", true, `"d"`},
		"another kind":    {func(h *hello) { h.kind = kindHello }, "b", false, "not a hello"},
		"refusal":         {func(h *hello) { *h = refuse(errors.New("full")) }, "b", false, "full"},
		"hostile refusal": {func(h *hello) { *h = hello{kind: kindRefusal, code: refusedOther, text: "\x1b[31m\n\xff"} }, "b", false, `\x1b[31m\n\xff`},
		"identity refusal": {func(h *hello) { *h = refuse(transport.ErrIdentity) }, "b", true,
			"refuses"},
	} {
		t.Run(name, func(t *testing.T) {
			h := good
			test.change(&h)
			err := h.check(kindWelcome, "c", "a", test.asked)
			if test.want == "" {
				if err != nil {
					t.Errorf("refused: %v", err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.want) || errors.Is(err, transport.ErrIdentity) != test.identity {
				t.Errorf("got %v, want an error with %s, of identity: %v", err, test.want, test.identity)
			}
		})
	}
}

func FuzzParseHello(f *testing.F) {
	for _, h := range hellos() {
		f.Add(h.append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b)
		if err != nil {
			return
		}
		again := h.append(nil)
		if h.kind == kindRefusal { // is read in every version
			copy(again[len(magic):], b[len(magic):len(magic)+2])
		}
		if !bytes.Equal(again, b) {
			t.Errorf("%x is accepted, but append makes %x of it", b, again)
		}
	})
}
