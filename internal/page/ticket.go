package page

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// TicketLife is the shortest life of a ticket. The longest is twice as long.
	TicketLife = 10 * time.Minute
	// sessionLife is the time after which a browser needs another ticket.
	sessionLife = 12 * time.Hour
)

// A Key makes and checks tickets, and the sessions of browsers that have shown one. Everyone with the token of the cluster has the
// same Key, so a ticket needs no message to the page, and sessions outlive a restart of the page.
type Key struct{ secret []byte }

// NewKey returns the key of the cluster with a token. Without a token it is a random one.
func NewKey(token string) Key {
	if token = strings.TrimSpace(token); token == "" {
		token = rand.Text()
	}
	return Key{Key{[]byte(token)}.mac("nexar page")}
}

// mac authenticates a text. Texts of different purposes begin with different words.
func (k Key) mac(text string) []byte {
	h := hmac.New(sha256.New, k.secret)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// Ticket returns the ticket of a moment: 80 bits, in four groups of letters and digits.
func (k Key) Ticket(now time.Time) string {
	text := k.ticket(now.UnixNano() / int64(TicketLife))
	return text[:4] + "-" + text[4:8] + "-" + text[8:12] + "-" + text[12:]
}

func (k Key) ticket(window int64) string {
	return strings.ToLower(base32.StdEncoding.EncodeToString(k.mac(fmt.Sprintf("ticket %d", window))[:10]))
}

// checkTicket reports whether a text is a valid ticket. Case, hyphens and white space do not matter. The ticket of the next
// window is valid, too, since clocks of hosts differ.
func (k Key) checkTicket(text string, now time.Time) bool {
	text = strings.Join(strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return r == '-' || r == ' ' || r == '\t' || r == '\n' || r == '\r' }), "")
	window, ok := now.UnixNano()/int64(TicketLife), 0
	for w := window - 1; w <= window+1; w++ {
		ok |= subtle.ConstantTimeCompare([]byte(k.ticket(w)), []byte(text))
	}
	return ok == 1
}

// cookie is the name of the cookie with the session. Browsers send cookies of a host to all of its ports, so pages of different
// clusters need different names.
func (k Key) cookie() string { return "nexar-" + hex.EncodeToString(k.mac("cookie")[:4]) }

// session returns the value of a cookie that is valid until end.
func (k Key) session(end time.Time) string {
	until := strconv.FormatInt(end.Unix(), 10)
	return until + "." + hex.EncodeToString(k.mac("session "+until))
}

// checkSession reports whether a value is one of session that has not ended.
func (k Key) checkSession(value string, now time.Time) bool {
	until, _, _ := strings.Cut(value, ".")
	end, err := strconv.ParseInt(until, 10, 64)
	if err != nil {
		return false
	}
	same := subtle.ConstantTimeCompare([]byte(k.session(time.Unix(end, 0))), []byte(value)) == 1
	return same && now.Before(time.Unix(end, 0))
}
