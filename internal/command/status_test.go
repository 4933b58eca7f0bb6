package command

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/trace"
)

// A stopAfter keeps its input, and cancels a context at the n-th line that contains a text.
type stopAfter struct {
	bytes.Buffer
	text string
	n    int
	stop context.CancelFunc
}

func (w *stopAfter) Write(b []byte) (int, error) {
	w.Buffer.Write(b)
	if strings.Count(w.String(), w.text) >= w.n {
		w.stop()
	}
	return len(b), nil
}

func TestStatusWatch(t *testing.T) {
	token := nexar.NewToken()
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 2, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	t.Setenv("NEXAR_CLUSTER_TOKEN", token)
	for name, test := range map[string]struct {
		json bool
		text string
	}{
		"for people":   {false, "The world forms: 0 of 2 have joined\n\n"},
		"for programs": {true, `"nodes":[]}` + "\n"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			w := &stopAfter{text: test.text, n: 2, stop: stop}
			f := statusFlags{seed: seed.Addr(), json: test.json, watch: time.Millisecond}
			if err := f.run(ctx, w); err != nil && ctx.Err() == nil {
				t.Fatal(err)
			}
			if got := strings.Count(w.String(), test.text); got != 2 {
				t.Errorf("it says %d times what it should say twice:\n%s", got, w)
			}
			for line := range strings.Lines(w.String()) {
				var status trace.Cluster
				if err := json.Unmarshal([]byte(line), &status); test.json && (err != nil || status.World != 2) {
					t.Errorf("a line is %q (%v)", line, err)
				}
			}
		})
	}
}
