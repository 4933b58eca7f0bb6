package p2p

import "context"

// A Matched is a message that [Messages.MatchedProbe] has taken. No other receive gets it.
type Matched struct {
	messages *Messages
	arrival  arrival
}

// MatchedProbe waits for a message from source with tag (both may be [Any]), and takes it, so that
// only [Matched.StartRecv] can receive it. If ctx ends first, no message is taken. A message that
// is not received stays in memory until the communicator ends.
func (m *Messages) MatchedProbe(ctx context.Context, source int, tag int64) (*Matched, error) {
	for {
		if t, err := m.takeMatched(source, tag); t != nil || err != nil {
			return t, err
		}
		// Another receive may take the message that ends the probe.
		if _, err := m.Probe(ctx, source, tag); err != nil {
			return nil, err
		}
	}
}

// takeMatched takes a message that has arrived. It returns nil if there is none.
func (m *Messages) takeMatched(source int, tag int64) (*Matched, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.err != nil {
		return nil, m.err
	}
	m.begun++
	a, ok := m.matcher.TakeMessage(source, tag)
	if !ok {
		return nil, nil
	}
	t := &Matched{m, a}
	if m.matched == nil {
		m.matched = make(map[*Matched]struct{})
	}
	m.matched[t] = struct{}{}
	return t, nil
}

// Received describes the message.
func (t *Matched) Received() Received { return t.arrival.received() }

// StartRecv starts to receive the message into buf, as [Messages.StartRecv] does. It returns ok
// false if StartRecv has been called before.
func (t *Matched) StartRecv(buf *Regions, typ uint8) (r *Receive, ok bool, err error) {
	m := t.messages
	r = m.newReceive(buf, typ, t.arrival.source, t.arrival.tag)
	var fx Effects
	m.mu.Lock()
	if _, ok = m.matched[t]; !ok || m.err != nil {
		err = m.err
		m.mu.Unlock()
		return nil, ok, err
	}
	delete(m.matched, t)
	m.begun++
	r.begun, r.number = m.stampLocked(), m.begun
	if t.arrival.payload == nil {
		t.arrival.link.Credit().Dropped()
	}
	m.takeLocked(&fx, r, &t.arrival)
	m.mu.Unlock()
	m.Perform(&fx)
	return r, true, nil
}
