package devicetest

// Stats are what a Fake has counted.
type Stats struct {
	// Copies that were done, and their bytes: from the host to buffers, by
	// CopyIn or ReceiveInto; from buffers to the host, by CopyOut or StageSend;
	// and from buffer to buffer. Those that failed are not counted.
	CopiesIn, CopiesOut, CopiesWithin int
	BytesIn, BytesOut, BytesWithin    int64

	// What is there now: not freed, not closed.
	Buffers, Stagings, Streams int

	// Bytes of memory in use, of buffers and of staging memory, now and at
	// the most. Freed memory is in use until no queued work uses it.
	Memory, MemoryMost               int
	StagingMemory, StagingMemoryMost int
}

// peaks notes how much memory is in use.
func (s *Stats) peaks(memory, staging int) {
	s.MemoryMost = max(s.MemoryMost, memory)
	s.StagingMemoryMost = max(s.StagingMemoryMost, staging)
}

// Stats returns what was counted until now. Wait for streams first.
func (f *Fake) Stats() Stats {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.stats
	s.Memory, s.StagingMemory = f.memory.used, f.staging.used
	for thing := range f.alive {
		switch thing.(type) {
		case *buffer:
			s.Buffers++
		case *staging:
			s.Stagings++
		case *stream:
			s.Streams++
		}
	}
	return s
}

// count changes the counters.
func (f *Fake) count(change func(*Stats)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.stats)
}
