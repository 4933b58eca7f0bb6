package examples

import (
	"context"
	"math"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// A training is the output of a run of train.
type training struct {
	losses, test []float64 // losses of each epoch, on the training and the test set
	accuracy     float64   // on the test set after the last epoch, in percent
	weights      string
}

func (tr training) loss() float64 { return tr.losses[len(tr.losses)-1] }

// train runs the program as one process or, if ranks is not 0, as that many.
func train(t *testing.T, dir string, env []string, ranks int, args ...string) (got training) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runMax)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(dir, "train"), args...)
	if ranks > 0 {
		args = append([]string{"run", "-n", strconv.Itoa(ranks), "--no-prefix", "--", program(dir, "train")}, args...)
		cmd = exec.CommandContext(ctx, program(dir, "nexar"), args...)
	}
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, out)
	}
	epochs := regexp.MustCompile(`(?m)^epoch +(\d+): training loss ([\d.]+), test loss ([\d.]+), test accuracy ([\d.]+)%$`)
	for i, m := range epochs.FindAllStringSubmatch(string(out), -1) {
		if m[1] != strconv.Itoa(i+1) {
			t.Errorf("line %q, want epoch %d", m[0], i+1)
		}
		got.losses, got.test = append(got.losses, number(t, m[2])), append(got.test, number(t, m[3]))
		got.accuracy = number(t, m[4])
	}
	weights := regexp.MustCompile(`(?m)^weights ([0-9a-f]{16}), the same bits on all ranks`).FindSubmatch(out)
	if len(got.losses) == 0 || weights == nil {
		t.Fatalf("%v printed\n%s", cmd.Args, out)
	}
	got.weights = string(weights[1])
	return got
}

func number(t *testing.T, text string) float64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// testTrain: the training reaches the expected accuracy with any number of ranks.
func testTrain(t *testing.T, dir string) {
	const accuracy = 95 // percent of the test set
	alone := train(t, dir, nil, 0)
	if alone.accuracy < accuracy || len(alone.losses) != 30 {
		t.Errorf("one rank: %d epochs and accuracy %v%%, want 30 and %d%%", len(alone.losses), alone.accuracy, accuracy)
	}
	t.Run("ranks", func(t *testing.T) {
		four := train(t, dir, nil, 4)
		if four.accuracy < accuracy {
			t.Errorf("accuracy %v%%, want %d%%", four.accuracy, accuracy)
		}
		sameCurve(t, four, alone)
		few := train(t, dir, nil, 0, "--epochs", "3")
		for _, ranks := range []int{2, 3} {
			sameCurve(t, train(t, dir, nil, ranks, "--epochs", "3"), few)
		}
	})
	// With 1% of the gradients, or 8 or 16 bits of each element, the result is as good as without
	// compression.
	t.Run("compress", func(t *testing.T) {
		for _, name := range []string{"topk", "randomk", "quantize8", "cast16"} {
			got := train(t, dir, nil, 0, "--local", "4", "--compress", name)
			if name == "topk" {
				// Compressed gradients are added in the order of the ranks, so the bits do not
				// depend on the transport.
				if same := train(t, dir, nil, 4, "--compress", name); same.weights != got.weights {
					t.Errorf("%s: weights of four processes %s, of four ranks in one process %s", name, same.weights, got.weights)
				}
			}
			t.Logf("%s: loss %v, uncompressed %v; accuracy %v%%", name, got.loss(), alone.loss(), got.accuracy)
			if got.loss() > 1.05*alone.loss() || got.accuracy < accuracy {
				t.Errorf("%s: loss %v and accuracy %v%%, want at most 5%% above %v, and %d%%",
					name, got.loss(), got.accuracy, alone.loss(), accuracy)
			}
			if got.weights == alone.weights {
				t.Errorf("%s: same weights as without compression", name)
			}
		}
	})
	t.Run("deterministic", func(t *testing.T) { testDeterministic(t, dir) })
	t.Run("usage", func(t *testing.T) { testTrainUsage(t, dir) })
}

// sameCurve checks that losses are equal up to rounding.
func sameCurve(t *testing.T, got, want training) {
	t.Helper()
	if len(got.losses) != len(want.losses) {
		t.Fatalf("got %d epochs, want %d", len(got.losses), len(want.losses))
	}
	for i := range want.losses {
		// The last printed digit may differ.
		if math.Abs(got.losses[i]-want.losses[i]) > 5e-4 || math.Abs(got.test[i]-want.test[i]) > 5e-4 {
			t.Errorf("epoch %d: training loss %v and test loss %v, with one rank %v and %v", i+1, got.losses[i], got.test[i], want.losses[i], want.test[i])
		}
	}
}

// testDeterministic: with NEXAR_DETERMINISTIC the bits of the weights depend on the number of ranks,
// not on the transport.
func testDeterministic(t *testing.T, dir string) {
	const ranks = 3
	env := []string{"NEXAR_DETERMINISTIC=1"}
	want := train(t, dir, env, 0, "--local", strconv.Itoa(ranks), "--epochs", "2").weights
	for _, transports := range []string{"shm", "tcp", "quic"} {
		env := append(env[:1:1], "NEXAR_TRANSPORTS="+transports)
		if got := train(t, dir, env, ranks, "--epochs", "2").weights; got != want {
			t.Errorf("weights over %s: %s, in one process %s", transports, got, want)
		}
	}
}

// testTrainUsage: invalid arguments are errors that name the argument.
func testTrainUsage(t *testing.T, dir string) {
	for want, args := range map[string][]string{
		`unexpected argument "fast"`: {"fast"},
		"-fast":                      {"--fast"},
		"--epochs 0":                 {"--epochs", "0"},
		"--batch -1":                 {"--batch", "-1"},
		"--rate 0":                   {"--rate", "0"},
		"--local -1":                 {"--local", "-1"},
		`"zip" is not one of`:        {"--compress", "zip"},
		"nowhere.csv.gz":             {"--data", "nowhere.csv.gz"},
		"main.go: not a set of":      {"--data", "train/main.go", "--local", "3"},
	} {
		out, err := exec.Command(program(dir, "train"), args...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), want) {
			t.Errorf("train %q: got %q and error %v, want a message with %q", args, out, err, want)
		}
	}
	cmd := exec.Command(program(dir, "train"), "--local", "2")
	cmd.Env = append(os.Environ(), "NEXAR_SEEDS=127.0.0.1:1")
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "NEXAR_SEEDS") {
		t.Errorf("with --local in a cluster: got %q and error %v, want an error about it", out, err)
	}
	if out, err := exec.Command(program(dir, "train"), "--help").Output(); err != nil || !strings.Contains(string(out), "-compress") {
		t.Errorf("--help: got %q and error %v, want the flags", out, err)
	}
}
