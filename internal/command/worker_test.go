package command

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nexar-go/nexar"
)

// worker is the program that scripts start under nexar run. Its first argument selects the
// behavior:
//
//	sum             joins, and sums the ranks
//	env NAME...     prints variables
//	echo TEXT       prints TEXT to standard output and standard error
//	cat             prints its standard input
//	line            prints the first line of its standard input
//	chatter         prints without end
//	print lines     prints 160 MiB; with another argument, as one line
//	forget          ends without having joined
//	relays [FILE]   joins, runs collectives and messages between all ranks, counts the peers over relays, and waits for FILE
//	scrape PORT     joins, and sums the ranks; rank 0 prints the metrics of nexar run --metrics PORT
//	late RANK       joins, and sums the ranks; RANK waits for a file "go" first
//	skip RANK       joins, but not as RANK, which ends with status 0
//	exit RANK N     joins; RANK exits with status N, the others wait for it
//	die RANK        joins; RANK is killed, the others wait for it
//	panic RANK      joins; RANK panics, the others wait for it
//	child           joins, and starts a child that joins
//	early           starts a child that joins while it waits for its own seed
//	fail RANK       joins; RANK closes its node and exits with status 1 after the others, which wait for it
//	stubborn RANK N joins; RANK exits with status N, the others ignore that
//	hang RANK       joins; RANK sends nexar run SIGQUIT, the others wait for it
//	resources       joins, sends to all ranks, and prints its open files and threads, and
//	                the open files of nexar run
//	wait            joins, and waits for a signal
//	work            joins, and sums the ranks until a signal
//
// The last six write their process number to the file pid.RANK when they have
// joined.
func worker() { os.Exit(work(os.Args[1], os.Args[2:])) }

// printed is what a rank prints in the mode "print".
const printed = 160 << 20

func work(mode string, args []string) int {
	switch mode {
	case "env":
		for _, name := range args {
			value, ok := os.LookupEnv(name)
			fmt.Printf("%s=%s %v\n", name, value, ok)
		}
		return 0
	case "echo":
		fmt.Println("out", args[0])
		fmt.Fprint(os.Stderr, "err ", args[0])
		return 0
	case "cat":
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			fmt.Println("read", lines.Text())
		}
		return 0
	case "line":
		if lines := bufio.NewScanner(os.Stdin); lines.Scan() {
			fmt.Println("read", lines.Text())
		}
		return 0
	case "chatter":
		for {
			fmt.Println("and so on")
		}
	case "print":
		line := strings.Repeat("x", 1<<10)
		if args[0] == "lines" {
			line += "\n"
		}
		for range printed / len(line) {
			if _, err := fmt.Print(line); err != nil {
				return 1
			}
		}
		// The resource usage of a process contains the memory of the process that has started it, which runs many tests.
		status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", os.Getppid()))
		fmt.Fprintf(os.Stderr, "nexar run:\n%s", status)
		return 0
	case "forget":
		return 0
	case "skip":
		if os.Getenv("NEXAR_RANK") == args[0] {
			return 0
		}
	}
	if mode == "early" {
		return early()
	}
	node, err := nexar.Join(context.Background(), nexar.Config{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer node.Close()
	if mode == "child" {
		text, err := exec.Command(os.Args[0], "sum").CombinedOutput()
		fmt.Printf("%s", text)
		if err == nil || node.World().Barrier(context.Background()) != nil {
			return 1
		}
		return 0
	}
	if mode == "fail" {
		return fail(node, args[0])
	}
	if mode == "relays" {
		return relays(node, args)
	}
	return member(node.World(), mode, args)
}

// early starts a child that joins while this process waits for its seed.
func early() int {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	os.Setenv("NEXAR_SEEDS", l.Addr().String())
	go nexar.Join(context.Background(), nexar.Config{Transports: []string{"tcp"}})
	if _, err = l.Accept(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	text, err := exec.Command(os.Args[0], "sum").CombinedOutput()
	fmt.Printf("%s", text)
	if err == nil {
		return 1
	}
	return 0
}

// fail makes a rank exit with an error after it has closed its node, later than the others, which fail because of that.
func fail(n *nexar.Node, rank string) int {
	ctx, c := context.Background(), n.World()
	err := c.Barrier(ctx)
	if err == nil && rank == strconv.Itoa(c.Rank()) {
		err = errors.Join(n.Close(), errors.New("no such file"))
		time.Sleep(300 * time.Millisecond)
	} else if err == nil {
		err = c.Barrier(ctx)
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// relays exchanges data with all ranks, prints the number of peers that relays connect, and waits for files.
func relays(n *nexar.Node, files []string) int {
	ctx, c := context.Background(), n.World()
	err := exchangeAll(ctx, c)
	if err == nil {
		var part *nexar.Comm
		if part, err = c.Split(ctx, c.Rank()%2, c.Rank()); err == nil {
			err = errors.Join(exchangeAll(ctx, part), part.Close())
		}
	}
	if err == nil {
		err = c.Barrier(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	relayed := 0
	for _, p := range n.Peers() {
		if p.Transport == "relay" && p.LinkPurpose != "" {
			relayed++
		}
	}
	fmt.Printf("rank %d of %d has %d neighbors and has reached %d others through relays\n", c.Rank(), c.Size(), len(n.Neighbors()), relayed)
	for _, file := range files {
		awaitFile(file)
	}
	return 0
}

// exchangeAll makes an all-to-all and an all-reduce, and sends a message to each rank.
func exchangeAll(ctx context.Context, c *nexar.Comm) error {
	const m = 20_000
	out, in := make([]int64, m*c.Size()), make([]int64, m*c.Size())
	for i := range out {
		out[i] = int64(c.Rank()*c.Size() + i/m)
	}
	if err := nexar.AllToAll(ctx, c, in, out); err != nil {
		return err
	}
	for i := range in {
		if want := int64(i/m*c.Size() + c.Rank()); in[i] != want {
			return fmt.Errorf("all-to-all: element %d is %d, want %d", i, in[i], want)
		}
	}
	x := []int64{int64(c.Rank())}
	if err := nexar.AllReduce(ctx, c, x, nexar.Sum); err != nil || x[0] != int64(c.Size()*(c.Size()-1)/2) {
		return fmt.Errorf("all-reduce: %d, %w", x[0], err)
	}
	for step := 1; step < c.Size(); step++ {
		to, from := (c.Rank()+step)%c.Size(), (c.Rank()+c.Size()-step)%c.Size()
		h := nexar.StartRecv(ctx, c, in[:m], from, 1)
		if err := nexar.Send(ctx, c, out[:m], to, 1); err != nil {
			return err
		}
		if err := h.Wait(); err != nil || in[m-1] != int64(from*c.Size()) {
			return fmt.Errorf("message from rank %d: %d, %w", from, in[m-1], err)
		}
	}
	return nil
}

// scrape is the work of the worker scrape.
func scrape(c *nexar.Comm, port string) error {
	ctx := context.Background()
	if err := nexar.AllReduce(ctx, c, []int64{1}, nexar.Sum); err != nil {
		return err
	}
	if c.Rank() == 0 {
		for _, path := range []string{"/metrics", "/"} {
			answer, err := http.Get("http://127.0.0.1:" + port + path)
			if err != nil {
				return err
			}
			defer answer.Body.Close()
			fmt.Println(path, answer.Status)
			if _, err := io.Copy(os.Stdout, answer.Body); err != nil {
				return err
			}
		}
	}
	return c.Barrier(ctx) // The others wait for the scrape.
}

// awaitFile waits until a file exists.
func awaitFile(name string) {
	for _, err := os.Stat(name); err != nil; _, err = os.Stat(name) {
		time.Sleep(10 * time.Millisecond)
	}
}

// member is the work of a worker after joining.
func member(c *nexar.Comm, mode string, args []string) int {
	if mode == "late" && args[0] == strconv.Itoa(c.Rank()) {
		awaitFile("go")
	}
	if mode == "sum" || mode == "late" {
		sum := []int64{int64(c.Rank())}
		if err := nexar.AllReduce(context.Background(), c, sum, nexar.Sum); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		fmt.Printf("rank %d of %d: sum %d\n", c.Rank(), c.Size(), sum[0])
		return 0
	}
	if mode == "scrape" {
		if err := scrape(c, args[0]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return 0
	}
	if mode == "resources" {
		return printResources(c, len(args) == 0)
	}
	signals := make(chan os.Signal, 1)
	waits := mode == "wait" || mode == "work"
	if waits || mode == "stubborn" {
		signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	}
	// A rename is atomic: no reader gets a part of the number.
	name := "pid." + strconv.Itoa(c.Rank())
	err := errors.Join(os.WriteFile(name+".new", strconv.AppendInt(nil, int64(os.Getpid()), 10), 0o666), os.Rename(name+".new", name))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	chosen := !waits && args[0] == strconv.Itoa(c.Rank())
	if !waits {
		// No rank may fail while others are still joining.
		err = c.Barrier(context.Background())
	}
	switch {
	case err != nil && mode != "stubborn":
	case mode == "wait":
		fmt.Println("got", <-signals)
		return 0
	case mode == "work":
		for len(signals) == 0 && err == nil { // The first rank that gets a signal ends the call of the others.
			_, err = nexar.AllReduceOne(context.Background(), c, 1, nexar.Sum)
		}
		return 0
	case chosen && mode == "hang":
		for range c.Size() - 1 { // until the others are in the barrier
			if _, err := nexar.Recv(context.Background(), c, make([]int64, 1), nexar.AnyRank, 1); err != nil {
				fmt.Fprintln(os.Stderr, err)
				return 1
			}
		}
		time.Sleep(300 * time.Millisecond) // and wait for this rank
		quitParent()
		time.Sleep(time.Hour)
	case chosen && mode == "die":
		end()
	case chosen && mode == "panic":
		go panic("out of patience") // past the deferred Close
		select {}
	case chosen:
		status, _ := strconv.Atoi(args[1])
		os.Exit(status)
	case mode == "stubborn":
		time.Sleep(time.Hour)
	}
	if err == nil {
		barrier := c.StartBarrier(context.Background())
		if hangs, parseErr := strconv.Atoi(args[0]); mode == "hang" && parseErr == nil {
			err = nexar.Send(context.Background(), c, make([]int64, 1), hangs, 1)
		}
		err = errors.Join(err, barrier.Wait())
	}
	fmt.Fprintln(os.Stderr, err)
	// On a busy machine a rank that reacts to a death could end before nexar run has noticed
	// the first one. A pause, as by a program that cleans up, keeps the order.
	time.Sleep(300 * time.Millisecond)
	return 1
}

// printResources calls collectives on long and short vectors and prints resources as /proc counts them. With all, it
// first exchanges messages with all ranks, such that every connection is in use.
func printResources(c *nexar.Comm, all bool) int {
	ctx := context.Background()
	vector := make([]float32, 1<<20)
	err := errors.Join(nexar.AllReduce(ctx, c, vector, nexar.Sum), nexar.AllReduce(ctx, c, vector[:2], nexar.Sum), nexar.Broadcast(ctx, c, vector[:2], 0))
	for i := 1; all && i < c.Size() && err == nil; i++ {
		to, from := (c.Rank()+i)%c.Size(), (c.Rank()-i+c.Size())%c.Size()
		sent := make(chan error, 1)
		go func() { sent <- nexar.Send(ctx, c, vector[:1<<18], to, 1) }()
		_, err = nexar.Recv(ctx, c, vector[1<<18:1<<19], from, 1)
		err = errors.Join(err, <-sent)
	}
	if err = errors.Join(err, c.Barrier(ctx)); err == nil {
		fmt.Printf("resources %d %d %d\n", entries("/proc/self/fd"), entries("/proc/self/task"), entries(fmt.Sprintf("/proc/%d/fd", os.Getppid())))
		err = c.Barrier(ctx) // before the links end
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// entries counts the entries of a directory.
func entries(dir string) int {
	list, err := os.ReadDir(dir)
	if err != nil {
		return 0
	}
	return len(list)
}
