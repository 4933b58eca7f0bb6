// Command nexar starts, measures and examines clusters.
//
//	nexar run      starts a program as several ranks on this host
//	nexar seed     admits the nodes of a cluster of several hosts
//	nexar status   shows the current operation of every rank
//	nexar token    prints a new cluster token
//	nexar bench    measures operations, and verifies their results
//	nexar simulate predicts the times of collectives of many ranks
//	nexar doctor   checks this machine and its settings
//	nexar version  prints the version
//
// Every command has help: nexar run --help. The exit status is 0 on success, 1 on failure and 2 on
// wrong usage; nexar run returns the status of the program. A command that is interrupted by Ctrl-C
// returns 130.
package main

import "github.com/nexar-go/nexar/internal/command"

func main() { command.Main(command.Hardware{}) }
