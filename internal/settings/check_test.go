package settings

import (
	"testing"
	"time"
)

func TestCheck(t *testing.T) {
	place := func(n int) *int { return &n }
	for want, s := range map[string]sample{
		`S_COLOUR="blue": not one of red, green`:                  {Colour: "blue"},
		`S_ROADS="sea,rail": "rail" is not one of land, sea, air`: {Roads: []string{"sea", "rail"}},
		`S_ROADS="sea,,air": "" is not one of land, sea, air`:     {Roads: []string{"sea", "", "air"}},
		`S_COLOUR="\x1b[31m\n\xff": not one of red, green`:        {Colour: "\x1b[31m\n\xff"},
		`S_ROADS="\x1b,sea": "\x1b" is not one of land, sea, air`: {Roads: []string{"\x1b", "sea"}},
		"S_COUNT=10: not from 0 to 9":                             {Count: 10},
		"S_COUNT=-1: not from 0 to 9":                             {Count: -1},
		"S_PLACE=0: less than 1":                                  {Place: place(0)},
		"S_WAIT_SECS=-1ns: negative":                              {Wait: -1},
		"S_SHARE=101: more than 100":                              {Share: 101},
		"S_DREAM=-3: less than -2":                                {Dream: -3},

		"S_PAUSE_SECS=2s: not more than S_GAP_SECS, which is 3s":             {Pause: 2 * time.Second, Gap: 3 * time.Second},
		"S_PAUSE_SECS=1s: not more than S_GAP_SECS, which is 1s by default":  {Pause: time.Second, Gap: time.Second},
		"S_GAP_SECS=10s: not less than S_PAUSE_SECS, which is 5s by default": {Pause: 5 * time.Second, Gap: 10 * time.Second},
		"S_PAUSE_SECS=10s: not more than S_GAP_SECS, which is 20s":           {Pause: 10 * time.Second, Gap: 20 * time.Second},
	} {
		if err := Check(s); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	for _, s := range []sample{
		{},
		{Name: "anything", Colour: "green", Roads: []string{"air", "sea"}, Free: []string{"", "rail"}, Count: 9, Place: place(1), Share: -5, Dream: -2},
		{Wait: time.Hour, Hope: -time.Hour, Share: 100},
		{Pause: time.Second}, {Gap: time.Hour}, {Pause: time.Second, Gap: -1}, {Pause: -1, Gap: time.Second},
		Defaults[sample](),
	} {
		if err := Check(s); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
}

func TestCheckWantsFieldsThatAre(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a field above one that there is not was accepted")
		}
	}()
	_ = Check(struct {
		Count int `env:"S_COUNT" above:"Other"`
	}{})
}

func TestCheckWantsTagsThatFit(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a bound that is no number was accepted")
		}
	}()
	_ = Check(struct {
		Count int `env:"S_COUNT" min:"few"`
	}{})
}
