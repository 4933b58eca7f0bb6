// Package attack attacks clusters of real processes and checks that they stay
// correct.
//
// Every round of an attack forms a world of processes, on this host or on network
// namespaces (internal/testhost), disturbs it, and then checks the same things:
// every collective that returned had the right elements, every operation ended
// within a stated bound, errors name the node that caused them, no other node was
// removed from the world, and no process left goroutines or files behind.
//
// "go test" runs one round of the short attacks. "make attack" runs all of them,
// again and again, for ATTACK_TIME, with random seeds that it prints, and writes
// docs/results/attack.txt; "make attack-ci" does so for two minutes. These
// variables control a run:
//
//	ATTACK=2m         how long to attack; empty: one round of the short attacks
//	ATTACK_SEED=7     repeats a run; the default is random
//	ATTACK_ONLY=flap  runs the attacks with names that match a regular expression
//	REPORT=file       where the report goes
//
// The suite needs Linux.
package attack
