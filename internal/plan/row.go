package plan

// A Toll is the time of a message: for itself, and for each chunk.
type Toll struct{ Each, Chunk float64 }

// of returns the toll of a message. The product is converted so that it is rounded the same on
// all processors.
func (t Toll) of(chunks int) float64 { return t.Each + float64(t.Chunk*float64(chunks)) }

// A Row is a chain of dependent messages: the number of messages within hosts and between them,
// and of their chunks.
type Row struct{ Near, Far, NearChunks, FarChunks int }

// Tolls has the tolls of messages within a host and between hosts.
type Tolls struct{ Near, Far Toll }

// A reach is the time at which a chunk has its value, and the row that it depends on.
type reach struct {
	time                             float64
	near, far, nearChunks, farChunks int32
}

// after returns the reach of a chunk after a message.
func (r reach) after(t Tolls, same bool, chunks int) reach {
	if same {
		r.time += t.Near.of(chunks)
		r.near++
		r.nearChunks += int32(chunks)
	} else {
		r.time += t.Far.of(chunks)
		r.far++
		r.farChunks += int32(chunks)
	}
	return r
}

// Longest returns the row that takes longest, for each of several Tolls. It is [Depth] for
// ranks on several hosts, and returns the same error.
func (h Hosts) Longest(plans []Plan, tolls ...Tolls) ([]Row, error) {
	// The reaches of a chunk are adjacent.
	reaches := make([][Temp + 1][]reach, len(plans))
	for rank, p := range plans {
		reaches[rank] = [...][]reach{
			Data: make([]reach, p.Chunks*len(tolls)), Input: nil, Temp: make([]reach, p.Temps*len(tolls)),
		}
	}
	latest := func(rs []reach, rank int, s Span) {
		if s.Buf == Input {
			return // Its value exists from the beginning.
		}
		chunks := reaches[rank][s.Buf][s.Lo*len(rs) : s.Hi*len(rs)]
		for i := range chunks {
			if r := &rs[i%len(rs)]; chunks[i].time > r.time {
				*r = chunks[i]
			}
		}
	}
	most, rs := make([]reach, len(tolls)), make([]reach, len(tolls))
	err := run(plans, func(rank int, m, sent *Move) error {
		clear(rs)
		if sent != nil {
			latest(rs, m.Peer, sent.A)
			for k := range rs {
				rs[k] = rs[k].after(tolls[k], h.Same(rank, m.Peer), sent.A.Len())
			}
		}
		for _, s := range [...]Span{m.Dst, m.A, m.B} {
			latest(rs, rank, s)
		}
		for i := m.Dst.Lo; i < m.Dst.Hi; i++ {
			copy(reaches[rank][m.Dst.Buf][i*len(rs):], rs)
		}
		for k := range rs {
			if rs[k].time > most[k].time {
				most[k] = rs[k]
			}
		}
		return nil
	})
	rows := make([]Row, len(tolls))
	for k, r := range most {
		rows[k] = Row{int(r.near), int(r.far), int(r.nearChunks), int(r.farChunks)}
	}
	return rows, err
}
