package rpc

// Activity returns the number of calls that this rank has begun, and whether a call of this rank, or a
// function that another rank has called here, is in progress.
func (s *Service) Activity() (begun uint64, busy bool) {
	s.eachPeer(func(p *peer) {
		p.mu.Lock()
		defer p.mu.Unlock()
		begun += p.lastID
	})
	return begun, s.work.Load() > 1
}
