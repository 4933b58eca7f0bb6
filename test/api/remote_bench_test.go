package api

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"testing"
	"time"

	quicgo "github.com/quic-go/quic-go"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/test/worldtest"
)

// BenchmarkCallAgainstBareRequest alternates calls over QUIC with requests on a stream of quic-go
// (open, write, close, read the reply to its end), and reports both medians and their ratio.
func BenchmarkCallAgainstBareRequest(b *testing.B) {
	comms := worldtest.QUIC().Cluster(b, 2, nexar.Config{})
	registerEcho(comms)
	for _, bytes := range []int{64, 1 << 20} {
		b.Run(fmt.Sprintf("%dB", bytes), func(b *testing.B) {
			request := newBareRequest(b, bytes)
			args := make([]byte, bytes)
			var ours, bare []time.Duration
			for b.Loop() {
				start := time.Now()
				request()
				between := time.Now()
				if _, err := comms[0].Call(b.Context(), 1, "echo", args); err != nil {
					b.Fatal(err)
				}
				bare = append(bare, between.Sub(start))
				ours = append(ours, time.Since(between))
			}
			slices.Sort(ours)
			slices.Sort(bare)
			o, r := ours[len(ours)/2], bare[len(bare)/2]
			b.ReportMetric(float64(o.Nanoseconds())/1e3, "nexar-µs")
			b.ReportMetric(float64(r.Nanoseconds())/1e3, "bare-µs")
			b.ReportMetric(float64(o)/float64(r), "times-bare")
		})
	}
}

func registerEcho(comms []*nexar.Comm) {
	for _, c := range comms {
		c.Register("echo", func(_ context.Context, _ int, args []byte) ([]byte, error) { return args, nil })
	}
}

// newBareRequest returns a function that sends bytes on a new stream and reads the reply.
func newBareRequest(b *testing.B, bytes int) func() {
	near, far := bareConns(b)
	go func() {
		for {
			s, err := far.AcceptStream(context.Background())
			if err != nil {
				return
			}
			go answerBare(s)
		}
	}()
	args := make([]byte, bytes)
	return func() {
		s, err := near.OpenStreamSync(b.Context())
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Write(args); err != nil {
			b.Fatal(err)
		}
		s.Close()
		if got, err := io.ReadAll(s); err != nil || len(got) != bytes {
			b.Fatal(len(got), err)
		}
	}
}

func answerBare(s *quicgo.Stream) {
	defer s.Close()
	if args, err := io.ReadAll(s); err == nil {
		s.Write(args)
	}
}

// BenchmarkCall measures calls of 64 bytes, by one goroutine and by many.
func BenchmarkCall(b *testing.B) {
	for _, m := range []worldtest.Medium{worldtest.Mem(), worldtest.SHM(), worldtest.TCP(), worldtest.QUIC()} {
		for _, callers := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d callers", m.Name, callers), func(b *testing.B) {
				comms := m.Cluster(b, 2, nexar.Config{})
				registerEcho(comms)
				b.ReportAllocs()
				turns := make(chan struct{}, callers)
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						args := make([]byte, 64)
						for range turns {
							if _, err := comms[0].Call(b.Context(), 1, "echo", args); err != nil {
								b.Error(err)
							}
						}
					})
				}
				for b.Loop() {
					turns <- struct{}{}
				}
				close(turns)
				all.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "calls/s")
			})
		}
	}
}
