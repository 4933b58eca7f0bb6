package devicetest

// Stats are the counters of a [Fake].
type Stats struct {
	// Successful copies and their bytes: from the host to buffers, by CopyIn or ReceiveInto;
	// from buffers to the host, by CopyOut or StageSend; and between buffers.
	CopiesIn, CopiesOut, CopiesWithin int
	BytesIn, BytesOut, BytesWithin    int64

	// Numbers of buffers, stagings and streams that are not freed or closed.
	Buffers, Stagings, Streams int

	// Bytes in use by buffers and by stagings, now and at most. Freed memory counts until no
	// queued work uses it.
	Memory, MemoryMost               int
	StagingMemory, StagingMemoryMost int
}

// Stats returns the counters. Queued work counts when it is done: wait for streams first.
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

// count changes the counters, under the lock.
func (f *Fake) count(change func(*Stats)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.stats)
}
