package attack

// networkAttacks are those on networks between hosts.
func networkAttacks() []attack { return nil }
