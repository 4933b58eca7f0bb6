package mesh

import "sync"

// A mailbox is a queue without a bound. One goroutine takes the items in order.
type mailbox[T any] struct {
	wake chan struct{} // holds a value if each has something to do

	mu     sync.Mutex
	items  []T
	closed bool
}

func newMailbox[T any]() *mailbox[T] { return &mailbox[T]{wake: make(chan struct{}, 1)} }

// put adds an item, and does not block. It reports false after close.
func (b *mailbox[T]) put(item T) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.items = append(b.items, item)
	b.signalLocked()
	return true
}

func (b *mailbox[T]) signalLocked() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// close refuses further items.
func (b *mailbox[T]) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.signalLocked()
}

// each calls f with each item until the mailbox is closed and empty.
func (b *mailbox[T]) each(f func(T)) {
	for {
		<-b.wake
		b.mu.Lock()
		items, closed := b.items, b.closed
		b.items = nil
		b.mu.Unlock()
		for _, item := range items {
			f(item)
		}
		if closed {
			return
		}
	}
}

// A loop owns the peers of a Mesh: its goroutine alone decides what an event means for a peer. Decisions only change the peers, under Mesh.mu, which
// readers take as well. The executor, a second goroutine, carries out their effects in the same order.
type loop struct {
	events  *mailbox[func() (effects func())]
	effects *mailbox[func()]
	ended   chan struct{}
}

// begin starts the goroutines of the loop.
func (l *loop) begin(mu *sync.Mutex) {
	l.events, l.effects, l.ended = newMailbox[func() func()](), newMailbox[func()](), make(chan struct{})
	go func() {
		l.events.each(func(decide func() func()) {
			mu.Lock()
			effects := decide()
			mu.Unlock()
			if effects != nil {
				l.effects.put(effects)
			}
		})
		l.effects.close()
	}()
	go func() {
		defer close(l.ended)
		l.effects.each(func(effects func()) { effects() })
	}()
}

// end waits until all events have been handled. Later ones are ignored.
func (l *loop) end() {
	l.events.close()
	<-l.ended
}

// post lets the loop call decide, and the executor the function that it returns, unless that is nil. It does not block.
func (l *loop) post(decide func() (effects func())) { l.events.put(decide) }

// perform is post, and waits until the effects have been carried out. The functions that the executor calls must not call it.
func (l *loop) perform(decide func() (effects func())) {
	done := make(chan struct{})
	if l.events.put(func() func() {
		effects := decide()
		return func() {
			defer close(done)
			if effects != nil {
				effects()
			}
		}
	}) {
		<-done
	}
}

// ask is post, and waits until the loop has called decide.
func (l *loop) ask(decide func()) {
	done := make(chan struct{})
	if l.events.put(func() func() {
		defer close(done)
		decide()
		return nil
	}) {
		<-done
	}
}

// settle waits until the effects of all earlier events have been carried out.
func (l *loop) settle() { l.perform(func() func() { return nil }) }
