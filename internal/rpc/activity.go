package rpc

// Activity returns the number of calls that this rank has begun, and whether a call of this rank, or a
// function that another rank has called here, is in progress.
func (s *Service) Activity() (begun uint64, busy bool) {
	for i := range s.peers {
		p := &s.peers[i]
		p.mu.Lock()
		begun += p.lastID
		p.mu.Unlock()
	}
	return begun, s.work.Load() > 1
}
