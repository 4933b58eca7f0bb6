package server

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/rendezvous/handshake"
	"github.com/nexar-go/nexar/internal/wire"
)

func TestAddresses(t *testing.T) {
	tests := []struct {
		name     string
		observed string
		req      wire.JoinRequest
		want     []string
	}{
		{"nothing said", "10.0.0.7:7000", wire.JoinRequest{}, []string{"10.0.0.7:7000"}},
		{"alternates come later", "10.0.0.7:7000", wire.JoinRequest{Alternates: []string{"192.168.1.7:7000", "[fd00::7]:7000"}},
			[]string{"10.0.0.7:7000", "192.168.1.7:7000", "[fd00::7]:7000"}},
		{"listens elsewhere", "10.0.0.7:40000", wire.JoinRequest{Port: 7000}, []string{"10.0.0.7:7000"}},
		{"advertised, nothing else", "172.17.0.2:7000", wire.JoinRequest{Advertised: []string{"node.example:9000", "10.1.1.1:9000"}, Alternates: []string{"10.0.0.8:1"}},
			[]string{"node.example:9000", "10.1.1.1:9000"}},
		{"advertised without port", "172.17.0.2:7000", wire.JoinRequest{Advertised: []string{"Node.Example", "10.1.1.1", "fd00::1", "[fd00::2]"}},
			[]string{"node.example:7000", "10.1.1.1:7000", "[fd00::1]:7000", "[fd00::2]:7000"}},
		{"advertised without port, listens elsewhere", "172.17.0.2:7000", wire.JoinRequest{Port: 7946, Advertised: []string{"10.1.1.1"}},
			[]string{"10.1.1.1:7946"}},
		{"alternates of no use", "10.0.0.7:7000", wire.JoinRequest{Alternates: []string{"0.0.0.0:7000", "[::]:7000", ":7000", "10.0.0.8:0", "10.0.0.9:x", "10.0.0.7:7000"}},
			[]string{"10.0.0.7:7000"}},
		{"mapped", "[::ffff:10.0.0.7]:7000", wire.JoinRequest{Alternates: []string{"[::ffff:127.0.0.1]:7000"}}, []string{"10.0.0.7:7000", "127.0.0.1:7000"}},
		{"long form", "[0:0:0:0:0:0:0:1]:7000", wire.JoinRequest{}, []string{"[::1]:7000"}},
		{"link-local", "[fe80::1%eth0]:7000", wire.JoinRequest{Alternates: []string{"[fe80::1%ib0]:7000", "[fe80::2%ib0]:7000"}}, []string{"[fe80::1]:7000", "[fe80::2]:7000"}},
		{"no ports", "node-3", wire.JoinRequest{}, []string{"node-3"}},
		{"seen at nothing", "", wire.JoinRequest{Alternates: []string{"10.0.0.7:7000"}}, []string{"10.0.0.7:7000"}},
	}
	for _, test := range tests {
		got, err := addresses(test.observed, test.req)
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %v (%v), want %v", test.name, got, err, test.want)
		}
	}
}

func TestAddressesRefuses(t *testing.T) {
	tests := []struct {
		name     string
		observed string
		req      wire.JoinRequest
		text     string
	}{
		{"nothing at all", "", wire.JoinRequest{}, "no address"},
		{"wildcard", "0.0.0.0:7000", wire.JoinRequest{Alternates: []string{":7000"}}, "no address"},
		{"advertised wildcard", "10.0.0.7:7000", wire.JoinRequest{Advertised: []string{"10.0.0.7:7000", "0.0.0.0:7000"}}, `"0.0.0.0:7000": names no host`},
		{"advertised IPv6 wildcard", "10.0.0.7:7000", wire.JoinRequest{Advertised: []string{"[::]:7000"}}, "names no host"},
		{"advertised empty host", "10.0.0.7:7000", wire.JoinRequest{Advertised: []string{":7000"}}, "names no host"},
		{"advertised nothing", "10.0.0.7:7000", wire.JoinRequest{Advertised: []string{""}}, "not host:port"},
		{"advertised port zero", "10.0.0.7:7000", wire.JoinRequest{Advertised: []string{"10.0.0.7:0"}}, "port"},
		{"advertised bad port", "10.0.0.7:7000", wire.JoinRequest{Advertised: []string{"10.0.0.7:http"}}, "port"},
		{"advertised URL", "10.0.0.7:7000", wire.JoinRequest{Advertised: []string{"http://10.0.0.7"}}, "http"},
	}
	for _, test := range tests {
		got, err := addresses(test.observed, test.req)
		if !errors.Is(err, membership.ErrAddress) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v, error %v, want one that says %q", test.name, got, err, test.text)
		}
	}
}

func TestAddressesAreBounded(t *testing.T) {
	var req wire.JoinRequest
	for i := range 100 {
		req.Alternates = append(req.Alternates, fmt.Sprintf("10.0.0.%d:7000", i))
	}
	if got, err := addresses("10.1.0.1:7000", req); err != nil || len(got) != handshake.AddrsMax || got[0] != "10.1.0.1:7000" {
		t.Errorf("%d addresses (%v), want %d, the observed first", len(got), err, handshake.AddrsMax)
	}
}

func TestHostOf(t *testing.T) {
	for observed, want := range map[string]string{"10.0.0.1:7000": "10.0.0.1", "[fd00::1]:7000": "fd00::1", "[fe80::1%eth0]:7000": "fe80::1", "node-3": "node-3"} {
		if got := hostOf(observed); got != want {
			t.Errorf("host of %s is %s, want %s", observed, got, want)
		}
	}
}
