package relay

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/nexar-go/nexar/internal/membership"
	"github.com/nexar-go/nexar/internal/relay/forward"
	"github.com/nexar-go/nexar/internal/relay/relaytest"
	"github.com/nexar-go/nexar/internal/testlog"
	"github.com/nexar-go/nexar/transport"
)

// A hostile relay on the only path alters, repeats or forges frames of data. The data arrives, the destination counts the frames that it
// drops, in its Stats and at the conn, and its log names source, destination and the relay.
func TestRejectedFramesAreCounted(t *testing.T) {
	for kind, tamper := range map[string]func(f forward.Frame) []forward.Frame{
		"alters": func(f forward.Frame) []forward.Frame {
			f.Payload = slices.Clone(f.Payload)
			f.Payload[0] ^= 1
			return []forward.Frame{f}
		},
		"forges": func(f forward.Frame) []forward.Frame {
			f.Payload = make([]byte, len(f.Payload))
			return []forward.Frame{f}
		},
		"repeats": func(f forward.Frame) []forward.Frame { return []forward.Frame{f, f} },
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var frames, spare atomic.Int64
				var log testlog.Buffer
				n := newNetwork(t, relaytest.Graph{{1}, {0, 2}, {1}}, func(i int, cfg *Config) {
					switch i {
					case 1:
						cfg.Tamper = func(to membership.NodeID, f forward.Frame) []forward.Frame {
							if to != relaytest.ID(2) || f.Kind != forward.Data {
								return []forward.Frame{f}
							}
							switch number := frames.Add(1); {
							case number%8 == 3 && kind == "repeats": // A repetition needs the credit of a dropped frame.
								spare.Add(int64(f.Charge()))
								return nil
							case number%8 == 7 && (kind != "repeats" || spare.Load() >= int64(f.Charge())):
								spare.Add(-int64(f.Charge()))
								return tamper(f)
							}
							return []forward.Frame{f}
						}
					case 2:
						cfg.Log = slog.New(slog.NewTextHandler(&log, nil))
					}
				})
				a, b := n.connect(0, 2)
				data := payload(1 << 20)
				if got := n.transfer(a, b, data, func() {}); !bytes.Equal(got, data) {
					t.Errorf("got %d bytes, want %d equal ones", len(got), len(data))
				}
				synctest.Wait()
				stats := n.endpoints[2].Stats()
				altered, repeated := b.(*conn).Rejected()
				if altered != stats.Altered || repeated != stats.Repeated || (altered > 0) != (kind != "repeats") || kind == "repeats" && repeated == 0 {
					t.Errorf("the conn counts %d altered and %d repeated frames, the node %d and %d", altered, repeated, stats.Altered, stats.Repeated)
				}
				if s := n.endpoints[1].Stats(); s.Altered+s.Repeated > 0 {
					t.Errorf("the hostile relay counts %+v", s)
				}
				text := fmt.Sprintf("altered or forged on its path and is dropped\" source=%v destination=%v from=%v ", relaytest.ID(0), relaytest.ID(2), relaytest.ID(1))
				if got := log.String(); strings.Contains(got, text) != (altered > 0) {
					t.Errorf("log %q, want %q if frames were altered", got, text)
				}
			})
		})
	}
}

// A hostile relay on the only path alters all frames. The error of the conn names source, destination and the relay.
func TestErrorNamesPath(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var alters atomic.Bool
		n := newNetwork(t, relaytest.Graph{{1}, {0, 2}, {1}}, func(i int, cfg *Config) {
			if i == 1 {
				cfg.Tamper = func(_ membership.NodeID, f forward.Frame) []forward.Frame {
					if alters.Load() {
						f.Payload = slices.Clone(f.Payload)
						f.Payload[0] ^= 1
					}
					return []forward.Frame{f}
				}
			}
		})
		a, b := n.connect(0, 2)
		s, _ := n.pipe(a, b)
		alters.Store(true)
		if _, err := s.Write([]byte("message")); err != nil {
			t.Fatal(err)
		}
		<-a.Done()
		want := fmt.Sprintf("frames from node %v to it go over the relays [%v]", relaytest.ID(0), relaytest.ID(1))
		if err := a.Err(); !errors.Is(err, transport.ErrPeerGone) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), relaytest.ID(2).String()) {
			t.Errorf("got error %v, want %v, with the destination and %q", err, transport.ErrPeerGone, want)
		}
	})
}
