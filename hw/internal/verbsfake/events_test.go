package verbsfake_test

import (
	"os"
	"testing"
	"time"

	"github.com/nexar-go/nexar/hw/internal/verbs"
	"github.com/nexar-go/nexar/hw/internal/verbsfake"
)

// open opens the device of the fake.
func open(t *testing.T) (*verbsfake.Fake, *verbs.Device) {
	t.Helper()
	fake := verbsfake.New(t)
	d, err := verbs.Open("fake0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return fake, d
}

// TestEachArmGivesEvent: each request of an event gives one, also on a device that counts the requests and ignores repeated numbers.
func TestEachArmGivesEvent(t *testing.T) {
	_, d := open(t)
	pd, err := d.NewPD()
	if err != nil {
		t.Fatal(err)
	}
	defer pd.Close()
	cq, err := d.NewCQ(16)
	if err != nil {
		t.Fatal(err)
	}
	defer cq.Close()
	qp, err := pd.NewQP(cq, verbs.Queue{Send: 4, Receive: 16})
	if err != nil {
		t.Fatal(err)
	}
	defer qp.Close()
	if err := qp.Fail(); err != nil {
		t.Fatal(err)
	}
	memory, err := verbs.NewMemory(4096)
	if err != nil {
		t.Fatal(err)
	}
	defer memory.Free()
	for i := range 9 {
		if err := cq.Arm(); err != nil {
			t.Fatal(err)
		}
		if err := qp.Receive(uint64(i), memory, 0); err != nil { // It completes at once, since the queue pair has failed.
			t.Fatal(err)
		}
		waited := make(chan error, 1)
		go func() { waited <- cq.Wait() }()
		select {
		case err := <-waited:
			if err != nil {
				t.Fatalf("event %d: %v", i, err)
			}
		case <-time.After(time.Minute):
			cq.Interrupt()
			<-waited
			t.Fatalf("event %d does not arrive", i)
		}
		if list, err := cq.Poll(nil); err != nil || len(list) != 1 {
			t.Fatalf("event %d: %d completions, %v; want one", i, len(list), err)
		}
	}
}

// TestWaitWithoutEvent: a wait for events of a queue, or of a device, ends when it is interrupted.
func TestWaitWithoutEvent(t *testing.T) {
	_, d := open(t)
	cq, err := d.NewCQ(16)
	if err != nil {
		t.Fatal(err)
	}
	defer cq.Close()
	events, err := d.Events()
	if err != nil {
		t.Fatal(err)
	}
	waited := make(chan error, 2)
	go func() { waited <- cq.Wait() }()
	go func() {
		_, err := d.Event(events)
		waited <- err
	}()
	cq.Interrupt()
	events.Close()
	for range 2 {
		if err := <-waited; err == nil {
			t.Error("a wait without an event ends without an error")
		}
	}
}

// TestEventsOfDevice: the events of a device are those of its library, in their order.
func TestEventsOfDevice(t *testing.T) {
	fake, d := open(t)
	events, err := d.Events()
	if err != nil {
		t.Fatal(err)
	}
	defer events.Close()
	fake.PortDown(2)
	fake.PortDown(1)
	fake.Remove(true)
	defer fake.Remove(false)
	for i, want := range []verbs.Event{{Down: 2}, {Down: 1}, {Fatal: true}} {
		if got, err := d.Event(events); err != nil || got != want {
			t.Errorf("event %d: %+v, %v; want %+v", i, got, err, want)
		}
	}
}

// openFiles returns the number of open files of the process.
func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
