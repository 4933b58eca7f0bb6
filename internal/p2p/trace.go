package p2p

// The kinds of records.
const (
	Sent uint8 = iota
	Got
	Probed
)

// A Record describes a send, receive or probe that has ended or is in progress.
type Record struct {
	What         uint8 // Sent, Got or Probed
	Type         uint8 // kernel.Type of the elements
	Peer         int32 // the other rank, or Any
	Tag          int64
	Bytes        int64
	Begun, Ended int64 // by Config.Clock
	Err          error
}

// SetRecording turns the recording of messages on or off. It is off at first.
func (m *Messages) SetRecording(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recording = on
}

// stampLocked returns the time, for the beginning of a call, or 0 if recording is off.
func (m *Messages) stampLocked() int64 {
	if !m.recording {
		return 0
	}
	return m.cfg.Clock.Stamp()
}

// stampEndLocked returns the time, for the end of a call, or 0 if recording is off.
func (m *Messages) stampEndLocked(begun int64) int64 {
	if !m.recording {
		return 0
	}
	return m.cfg.Clock.StampEnd(begun)
}

// recordLocked records a send or receive that has ended. It writes the fields of the record in place,
// since a copy would take longer.
func (m *Messages) recordLocked(what, typ uint8, peer int, tag int64, bytes int, begun, ended int64, err error) {
	if !m.recording {
		return
	}
	p := m.past.Put()
	p.What, p.Type, p.Peer, p.Tag, p.Bytes = what, typ, int32(peer), tag, int64(bytes)
	p.Begun, p.Ended, p.Err = begun, ended, err
}

func (m *Messages) recordReceiveLocked(r *Receive, err error) {
	peer, tag := r.source, r.tag
	if err == nil {
		peer, tag = r.got.Source, r.got.Tag
	}
	m.recordLocked(Got, r.typ, peer, tag, r.got.Bytes, r.begun, m.stampEndLocked(r.begun), err)
}

// Records calls f for the latest sends and receives that have ended, and for all calls in progress.
// moved is the number of bytes that have been sent or received. f must not call methods of m.
func (m *Messages) Records(f func(r *Record, moved int64, isActive bool)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.past.Each(func(r *Record) { f(r, r.Bytes, false) })
	for _, s := range m.sends {
		f(&Record{What: Sent, Type: s.typ, Peer: int32(s.rank), Tag: s.tag, Bytes: int64(s.size), Begun: s.begun},
			int64(m.links[s.rank].Delivering(&s.transfer)), true)
	}
	for _, r := range m.receiving {
		if r.prefetch != nil {
			if r = r.prefetch.taker; r == nil {
				continue
			}
		}
		f(&Record{What: Got, Type: r.typ, Peer: int32(r.got.Source), Tag: r.got.Tag, Bytes: int64(r.got.Bytes), Begun: r.begun},
			r.movedLocked(), true)
	}
	m.matcher.EachReceive(func(r *Receive) {
		f(&Record{What: Got, Type: r.typ, Peer: int32(r.source), Tag: r.tag, Begun: r.begun}, 0, true)
	})
	for _, p := range m.probes {
		f(&Record{What: Probed, Peer: int32(p.source), Tag: p.tag, Begun: p.begun}, 0, true)
	}
}
