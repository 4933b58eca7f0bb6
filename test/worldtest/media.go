package worldtest

// Media returns the media over which a test runs: all of them, or the first and the last if
// [Brief]. TestConformance of test/conformance runs over all media even then.
func Media(all ...Medium) []Medium {
	if Brief() && len(all) > 2 {
		return []Medium{all[0], all[len(all)-1]}
	}
	return all
}
