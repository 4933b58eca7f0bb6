//race:none it starts no goroutine

package curve

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
)

// An svg has the elements of a drawing.
type svg struct {
	Texts []string `xml:"text"`
	Lines []struct {
		Points string `xml:"points,attr"`
	} `xml:"polyline"`
}

func draw(t *testing.T, title string, lines ...Line) (got svg) {
	t.Helper()
	var b strings.Builder
	if err := Draw(&b, title, lines...); err != nil {
		t.Fatal(err)
	}
	if err := xml.Unmarshal([]byte(b.String()), &got); err != nil {
		t.Fatalf("%v in\n%s", err, b.String())
	}
	if strings.Contains(b.String(), "NaN") || strings.Contains(b.String(), "Inf") {
		t.Errorf("a coordinate is NaN:\n%s", b.String())
	}
	return got
}

func TestDraw(t *testing.T) {
	got := draw(t, "a < b & c", Line{"first", []float64{4, 2, 0}}, Line{"second", []float64{1, 1, 3}})
	for i, want := range []string{"60.0,40.0 340.0,195.0 620.0,350.0", "60.0,272.5 340.0,272.5 620.0,117.5"} {
		if points := strings.TrimSpace(got.Lines[i].Points); points != want {
			t.Errorf("points of line %d: %s, want %s", i, points, want)
		}
	}
	if want := []string{"a < b & c", "0", "1", "2", "3", "4", "1", "2", "3", "epoch", "first", "second"}; !slices.Equal(got.Texts, want) {
		t.Errorf("texts %q, want %q", got.Texts, want)
	}
}

// TestDrawOddValues: all points are between the axes, for any values.
func TestDrawOddValues(t *testing.T) {
	for name, values := range map[string][]float64{
		"none":           nil,
		"one":            {3},
		"zeros":          {0, 0},
		"not finite":     {1, math.NaN(), math.Inf(1), 2},
		"negative":       {-1, 5},
		"large":          {1e300, 1e299},
		"small":          {1e-300, 1e-299},
		"a power of ten": {10, 1000, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got := draw(t, "", Line{"values", values})
			want := 0
			for _, v := range values {
				if drawn(v) {
					want++
				}
			}
			points := strings.Fields(got.Lines[0].Points)
			if len(points) != want {
				t.Errorf("got points %q, want %d", points, want)
			}
			for _, point := range points {
				var x, y float64
				if _, err := fmt.Sscanf(point, "%f,%f", &x, &y); err != nil || x < left || x > right || y < top || y > bottom {
					t.Errorf("point %s is not between the axes: %v", point, err)
				}
			}
			if marks := len(got.Texts) - 3; marks > 12 {
				t.Errorf("%d marks: %q", marks, got.Texts)
			}
		})
	}
}

func TestStepOf(t *testing.T) {
	for high, want := range map[float64]float64{0: 1, 1: 0.5, 1.99: 0.5, 2: 1, 4.9: 1, 5: 2, 9.9: 2, 10: 5, 0.07: 0.02, 300: 100} {
		if got := stepOf(high); math.Abs(got-want) > 1e-9*want {
			t.Errorf("marks of an axis to %v: every %v, want %v", high, got, want)
		}
	}
}

func TestDrawFails(t *testing.T) {
	r, w := io.Pipe()
	want := errors.New("the disk is full")
	r.CloseWithError(want)
	if err := Draw(w, "", Line{}); !errors.Is(err, want) {
		t.Errorf("got error %v, want %v", err, want)
	}
}
