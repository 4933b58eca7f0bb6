package settings

import (
	"testing"
	"time"
)

func TestCheck(t *testing.T) {
	place := func(n int) *int { return &n }
	for want, s := range map[string]sample{
		"S_COLOUR=blue: not one of red, green":                  {Colour: "blue"},
		`S_ROADS=sea,rail: "rail" is not one of land, sea, air`: {Roads: []string{"sea", "rail"}},
		`S_ROADS=sea,,air: "" is not one of land, sea, air`:     {Roads: []string{"sea", "", "air"}},
		"S_COUNT=10: not from 0 to 9":                           {Count: 10},
		"S_COUNT=-1: not from 0 to 9":                           {Count: -1},
		"S_PLACE=0: less than 1":                                {Place: place(0)},
		"S_WAIT_SECS=-1ns: negative":                            {Wait: -1},
		"S_SHARE=101: more than 100":                            {Share: 101},
		"S_DREAM=-3: less than -2":                              {Dream: -3},
	} {
		if err := Check(s); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
	for _, s := range []sample{
		{},
		{Name: "anything", Colour: "green", Roads: []string{"air", "sea"}, Free: []string{"", "rail"}, Count: 9, Place: place(1), Share: -5, Dream: -2},
		{Wait: time.Hour, Hope: -time.Hour, Share: 100},
		Defaults[sample](),
	} {
		if err := Check(s); err != nil {
			t.Errorf("%+v: %v", s, err)
		}
	}
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
