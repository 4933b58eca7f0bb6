package page

import (
	"strings"
	"testing"
	"time"
)

func TestTickets(t *testing.T) {
	key, now := NewKey("a token"), time.Unix(1_700_000_000, 0)
	ticket := key.Ticket(now)
	for name, test := range map[string]struct {
		text string
		at   time.Duration
		want bool
	}{
		"now":                        {ticket, 0, true},
		"as a person types it":       {" " + strings.ToUpper(strings.ReplaceAll(ticket, "-", " ")) + "\n", 0, true},
		"at the end of its life":     {ticket, TicketLife, true},
		"after twice its life":       {ticket, 2 * TicketLife, false},
		"clock of the page is late":  {ticket, -TicketLife, true},
		"clock is much too late":     {ticket, -2 * TicketLife, false},
		"empty":                      {"", 0, false},
		"a prefix":                   {ticket[:14], 0, false},
		"of another cluster":         {NewKey("another token").Ticket(now), 0, false},
		"of a cluster without token": {NewKey("").Ticket(now), 0, false},
	} {
		if got := key.checkTicket(test.text, now.Add(test.at)); got != test.want {
			t.Errorf("%s: %q is valid: %v, want %v", name, test.text, got, test.want)
		}
	}
	if NewKey(" a token\n").Ticket(now) != ticket {
		t.Error("white space around the token changes the ticket")
	}
}

func TestSessions(t *testing.T) {
	key, now := NewKey("a token"), time.Unix(1_700_000_000, 0)
	session := key.session(now.Add(time.Hour))
	forged := strings.Replace(session, "17000036", "27000036", 1)
	for name, test := range map[string]struct {
		key   Key
		value string
		at    time.Duration
		want  bool
	}{
		"valid":              {key, session, 0, true},
		"after a restart":    {NewKey("a token"), session, time.Minute, true},
		"ended":              {key, session, time.Hour, false},
		"with a longer life": {key, forged, 0, false},
		"of another cluster": {NewKey("another token"), session, 0, false},
		"a ticket":           {key, key.Ticket(now), 0, false},
		"empty":              {key, "", 0, false},
		"a number alone":     {key, "1700003600", 0, false},
	} {
		if got := test.key.checkSession(test.value, now.Add(test.at)); got != test.want {
			t.Errorf("%s: %q is valid: %v, want %v", name, test.value, got, test.want)
		}
	}
	if key.cookie() == NewKey("another token").cookie() {
		t.Error("pages of two clusters of one host have the same cookie")
	}
}
