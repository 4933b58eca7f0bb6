package rpc

import (
	"sync"
	"testing"
	"time"

	"github.com/nexar-go/nexar/internal/wire"
)

// A crowd is a port at which messages lie. It holds up whoever takes more than
// a number of them until it is told to let them pass.
type crowd struct {
	prompt int // messages that are taken at once
	pass   chan struct{}

	mu    sync.Mutex
	queue []Message
	taken int
	sent  sync.WaitGroup // an answer for each message
}

func (p *crowd) Send(int, ...[]byte) error {
	p.sent.Done()
	return nil
}

func (p *crowd) Poll() (Message, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.queue) == 0 {
		return Message{}, false
	}
	return p.queue[0], true
}

func (p *crowd) Take(m Message, buf []byte, done func(error)) {
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

func (p *crowd) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}

// Whoever brings messages is not kept by many of them, nor by those for which
// much memory is needed: another goroutine takes these.
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
			p := &crowd{prompt: test.prompt, pass: make(chan struct{})}
			s, err := New(p, 0, 2, Config{})
			if err != nil {
				t.Fatal(err)
			}
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
			s.Arrived() // Which leaves all to whom they were left.
			close(p.pass)
			p.sent.Wait()
			s.Close(errTestClosed)
			if err := s.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A latecomer is a port to which a message comes just after Poll has found none.
type latecomer struct {
	crowd
	arrived func()
	late    []Message
}

func (p *latecomer) Poll() (Message, bool) {
	m, ok := p.crowd.Poll()
	if !ok && len(p.late) > 0 {
		p.queue, p.late = p.late[:1], p.late[1:]
		p.arrived()
	}
	return m, ok
}

// No message is forgotten that comes while the last look is over and the one
// who looked still counts as looking.
func TestArrivedAgain(t *testing.T) {
	p := &latecomer{crowd: crowd{prompt: 3}}
	s, err := New(p, 0, 2, Config{})
	if err != nil {
		t.Fatal(err)
	}
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
