package attack

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// roleVariable has the role that the test binary takes in place of the tests, and
// argsVariable the arguments of the role as JSON.
const (
	roleVariable = "ATTACK_ROLE"
	argsVariable = "ATTACK_ARGS"
)

// roles returns the main functions of the processes that tests start.
func roles() map[string]func(args arguments) error {
	return map[string]func(arguments) error{"rank": runRank, "seed": runSeed}
}

func TestMain(m *testing.M) {
	role := os.Getenv(roleVariable)
	if role == "" {
		goleak.VerifyTestMain(m)
		return
	}
	var args arguments
	err := json.Unmarshal([]byte(os.Getenv(argsVariable)), &args)
	if run := roles()[role]; err == nil && run != nil {
		err = run(args)
	} else if err == nil {
		err = fmt.Errorf("unknown role %q", role)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, role+":", err)
		os.Exit(1)
	}
}
