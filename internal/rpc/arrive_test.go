package rpc

import (
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

// A heldPort has pending messages. After prompt of them, it blocks Take until it is
// released.
type heldPort struct {
	prompt int // messages that are taken at once
	pass   chan struct{}

	mu    sync.Mutex
	queue []Message
	taken int
	sent  sync.WaitGroup // an answer to each message
}

func (p *heldPort) Send(int, ...[]byte) error {
	p.sent.Done()
	return nil
}

func (p *heldPort) Poll() (Message, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return Message{}, false
	}
	return p.queue[0], true
}

func (p *heldPort) Take(m Message, buf []byte, done func(error)) {
	if p.count() >= p.prompt {
		<-p.pass
	}
	p.mu.Lock()
	p.taken++
	p.queue = p.queue[1:]
	p.mu.Unlock()
	c := wire.RemoteCall{ID: m.ID}
	copy(buf, c.Append(nil, "none"))
	done(nil)
}

func (p *heldPort) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}

// Arrived is not delayed by many messages, nor by messages that need much memory:
// another goroutine takes these.
func TestArrivedIsPrompt(t *testing.T) {
	const many = 3 * promptMessages
	for name, test := range map[string]struct {
		messages, bytes, prompt int
	}{
		"many":        {many, 100, promptMessages},
		"long ones":   {3, promptBytes + 1, 0},
		"a short one": {1, promptBytes, 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := &heldPort{prompt: test.prompt, pass: make(chan struct{})}
			s := New(p, 0, 2, Config{})
			for i := range test.messages {
				p.queue = append(p.queue, Message{Source: 1, Bytes: test.bytes, ID: uint64(i)})
			}
			p.sent.Add(test.messages)
			returned := make(chan struct{})
			go func() {
				s.Arrived()
				close(returned)
			}()
			select {
			case <-returned:
			case <-time.After(time.Minute):
				t.Fatalf("Arrived takes more than %d messages", test.prompt)
			}
			if got := p.count(); got != test.prompt {
				t.Errorf("Arrived took %d messages, want %d", got, test.prompt)
			}
			s.Arrived() // It leaves all messages to the goroutine.
			close(p.pass)
			p.sent.Wait()
			s.Close(errTestClosed)
			if err := s.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A latePort gets a message just after Poll has found none.
type latePort struct {
	heldPort
	arrived func()
	late    []Message
}

func (p *latePort) Poll() (Message, bool) {
	m, ok := p.heldPort.Poll()
	if !ok && len(p.late) > 0 {
		p.queue, p.late = p.late[:1], p.late[1:]
		p.arrived()
	}
	return m, ok
}

// No message is lost that arrives when the last Poll has found none and the polling
// goroutine has not ended.
func TestArrivedAgain(t *testing.T) {
	p := &latePort{heldPort: heldPort{prompt: 3}}
	s := New(p, 0, 2, Config{})
	p.arrived = s.Arrived
	for i := range 3 {
		p.late = append(p.late, Message{Source: 1, Bytes: 100, ID: uint64(i)})
	}
	p.sent.Add(3)
	s.Arrived()
	if got := p.count(); got != 3 {
		t.Errorf("%d messages were taken, want 3", got)
	}
	p.sent.Wait()
	s.Close(errTestClosed)
	if err := s.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}
