package client

import "time"

// seedSilent notes that no seed answers, and schedules warnings about the certificate of this node, which
// no seed renews: when half of its remaining life has passed, at its expiry, and at the end of the grace.
func (s *Session) seedSilent() {
	s.Identity.SeedSilent()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing.Err() != nil {
		return
	}
	silent, expires := time.Now(), s.Identity.NotAfter()
	end := expires.Add(max(s.req.CertificateGrace, 0))
	seed := s.seed
	warn := func(at time.Time, text string) {
		s.expiry = append(s.expiry, time.AfterFunc(time.Until(at), func() {
			s.log.Warn(text, "seed", seed, "silent since", silent, "expires", expires, "accepted by members until", end)
		}))
	}
	warn(silent.Add(expires.Sub(silent)/2), "no seed answers to renew the certificate of this node; with an expired one, only members of the world connect again")
	warn(expires, "the certificate of this node has expired, and no seed answers; only members of the world connect again, for the grace (NEXAR_CERTIFICATE_GRACE_SECS)")
	warn(end, "the certificate of this node has expired, and the grace has ended; no connection that breaks is made again until a seed answers")
}

// seedAnswersLocked notes that a seed answers.
func (s *Session) seedAnswersLocked() {
	s.Identity.SeedAnswers()
	s.stopExpiryLocked()
}

func (s *Session) stopExpiryLocked() {
	for _, t := range s.expiry {
		t.Stop()
	}
	s.expiry = nil
}
