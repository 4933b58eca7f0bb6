//race:none its tests start child processes, which the detector does not see

package launchers

import (
	"fmt"
	"os"
	"testing"

	"github.com/nexar-go/nexar/launch"
)

// roleVariable has the role that the test binary takes in place of the tests. With missingVariable, rank 0 also gets a value that no rank has put.
const (
	roleVariable    = "LAUNCHERS_ROLE"
	missingVariable = "LAUNCHERS_MISSING"
)

// roles are the programs of ranks.
func roles() map[string]func(launch.Environment) error {
	return map[string]func(launch.Environment) error{
		"exchange": exchange,
		"survive":  survive,
		"world":    world,
		"exchange over PMI-2": func(env launch.Environment) error {
			if err := withPMI2(env); err != nil {
				return err
			}
			return exchange(env)
		},
	}
}

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		code := m.Run()
		if err := writeReport(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		os.Exit(code)
	}
	run := roles()[role]
	if run == nil {
		fmt.Fprintf(os.Stderr, "unknown role %q\n", role)
		os.Exit(1)
	}
	if err := run(launch.Here()); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", role, err)
		os.Exit(1)
	}
}
