// Package attack attacks clusters of real processes and checks that they stay
// correct.
//
// Every round of an attack forms a world of processes, on this host or in network
// namespaces (internal/testhost), disturbs it, and then makes the same checks: every
// collective that returned had the right elements, every operation ended within a stated
// bound, errors name the node that caused them, no other node was removed from the
// world, and no process leaked goroutines or files.
//
// "go test" runs one round of the short attacks. "make attack" repeats all attacks for
// ATTACK_TIME, with a random seed that it prints, and writes docs/results/attack.txt;
// "make attack-ci" does so for about one round. These variables control a run:
//
//	ATTACK=2m         duration; empty: one round of the short attacks
//	ATTACK_SEED=7     repeats a run; the default is random
//	ATTACK_ONLY=flap  runs the attacks with names that match a regular expression
//	REPORT=file       the file for the report
//
// The suite needs Linux.
package attack
