package p2p

// The sides of a message on which a rank is.
const (
	Sent uint8 = iota
	Got
	Probed
)

// A Record is what is remembered of a message that has ended, or is under way.
type Record struct {
	What         uint8
	Type         uint8
	Peer         int32 // Any is -1
	Tag          int64
	Bytes        int64
	Begun, Ended int64 // by the clock
	Err          error
}

// SetRecording says whether messages are recorded from now on.
func (m *Messages) SetRecording(on bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recording = on
}

// stampLocked returns the time at which a message begins.
func (m *Messages) stampLocked() int64 {
	if !m.recording {
		return 0
	}
	return m.cfg.Clock.Stamp()
}

// recordLocked returns the record of a message that has ended, in which every field is
// to be set, or nil if messages are not recorded.
func (m *Messages) recordLocked() *Record {
	if !m.recording {
		return nil
	}
	return m.past.Put()
}

func (m *Messages) recordReceiveLocked(r *Receive, err error) {
	p := m.recordLocked()
	if p == nil {
		return
	}
	p.What, p.Type, p.Peer, p.Tag, p.Bytes = Got, r.typ, int32(r.source), r.tag, int64(r.got.Bytes)
	p.Begun, p.Ended, p.Err = r.begun, m.cfg.Clock.StampEnd(r.begun), err
	if err == nil {
		p.Peer, p.Tag = int32(r.got.Source), r.got.Tag
	}
}

// Records calls past for each message that has ended, the last of them, and underWay for
// those that have not, with how many bytes of each have been moved. The functions must
// not call m.
func (m *Messages) Records(past func(r *Record), underWay func(r *Record, moved int)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.past.Each(past)
	for _, s := range m.sends {
		r := Record{What: Sent, Type: s.typ, Peer: int32(s.rank), Tag: s.tag, Bytes: int64(s.size), Begun: s.begun}
		underWay(&r, m.links[s.rank].Delivering(&s.transfer))
	}
	m.eachReceivingLocked(func(r *Receive) {
		p := Record{What: Got, Type: r.typ, Peer: int32(r.got.Source), Tag: r.got.Tag, Bytes: int64(r.got.Bytes), Begun: r.begun}
		underWay(&p, r.from.Filling(&r.sink))
	})
	m.matcher.EachReceive(func(r *Receive) {
		underWay(&Record{What: Got, Type: r.typ, Peer: int32(r.source), Tag: r.tag, Begun: r.begun}, 0)
	})
	for _, p := range m.probes {
		underWay(&Record{What: Probed, Peer: int32(p.source), Tag: p.tag, Begun: p.begun}, 0)
	}
}
