package bufpool

// Stats are the statistics of a Pool.
type Stats struct {
	Tiers    []TierStats // in the order of Config.Tiers
	Oversize TierStats   // buffers larger than the largest tier; Size and Keep are 0
}

// TierStats are the statistics of a tier. At any time
// Gets = Hits + Misses and Misses = InUse + Idle + Drops + Trims.
type TierStats struct {
	Size, Keep int // as configured

	Gets   uint64 // buffers returned by Get
	Hits   uint64 // of these, buffers that were idle before
	Misses uint64 // of these, buffers that had to be allocated
	Puts   uint64 // buffers put back
	Drops  uint64 // of these, buffers not kept
	Trims  uint64 // idle buffers dropped by Trim

	InUse     int   // buffers not yet put back
	Idle      int   // buffers kept for reuse
	BytesIdle int64 // capacity of the idle buffers
}

// Stats returns the statistics of all tiers. The numbers of one tier are consistent.
func (p *Pool) Stats() Stats {
	s := Stats{Tiers: make([]TierStats, len(p.tiers)), Oversize: p.oversize.snapshot()}
	for i := range p.tiers {
		s.Tiers[i] = p.tiers[i].snapshot()
	}
	return s
}

func (t *tier) snapshot() TierStats {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.stats
	s.Size, s.Keep = t.Size, t.Keep
	s.Misses = s.Gets - s.Hits
	s.InUse = int(s.Gets - s.Puts)
	s.Idle = len(t.idle)
	return s
}
